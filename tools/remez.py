"""Polynomials of least weighted error, in 60 digits: for fit_vector_math.py and fit_special_math.py."""
import mpmath as mp

mp.mp.dps = 60


def remez(function, weight, low, high, count, points=1500):
    low, high = mp.mpf(low), mp.mpf(high)
    chebyshev = lambda n: [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / n) for i in range(n + 1)]
    grid = chebyshev(points)
    values, weights = [function(x) for x in grid], [weight(x) for x in grid]
    nodes = [min(range(points + 1), key=lambda g: abs(grid[g] - x)) for x in chebyshev(count)]
    for _ in range(8):
        a, b = mp.matrix(count + 1, count + 1), mp.matrix(count + 1, 1)
        for i, g in enumerate(nodes):
            for j in range(count):
                a[i, j] = grid[g] ** j
            a[i, count], b[i] = (-1) ** i / weights[g], values[g]
        solution = mp.lu_solve(a, b)
        c = [solution[j] for j in range(count)]
        error = [(mp.polyval(c[::-1], x) - f) * w for x, f, w in zip(grid, values, weights)]
        extrema = []  # the largest error between each two changes of its sign
        for i, e in enumerate(error):
            if extrema and (e > 0) == (error[extrema[-1]] > 0):
                if abs(e) > abs(error[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > count + 1:
            extrema.pop(0 if abs(error[extrema[0]]) < abs(error[extrema[-1]]) else -1)
        if len(extrema) < count + 1 or extrema == nodes:
            break
        nodes = extrema
    return c


def rounded(x, bits):
    mantissa, exponent = mp.frexp(x)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), exponent - bits)
