#!/usr/bin/env python3
"""Prints the coefficients of runtime/emit/vector_math.cpp and vector_trigonometry.cpp: weighted Remez fits in 60 digits, then rounded.

    pip install mpmath && python3 tools/fit_vector_math.py        # about 20 seconds

Each fit names the function, the interval and the weight; the error is max |weight * (polynomial - function)|,
relative with the weight 1/function. A leading coefficient that must be exact (1, 1, 1/2) is divided out.
"""
import mpmath as mp

from remez import remez, rounded


def fit(name, function, weight, low, high, count, bits):
    c = [rounded(x, bits) for x in remez(function, weight, low, high, count)]
    xs = [mp.mpf(low) + (mp.mpf(high) - low) * i / 2001 for i in range(2002)]
    worst = max(abs((mp.polyval(c[::-1], x) - function(x)) * weight(x)) for x in xs)
    interval = f"[{mp.nstr(mp.mpf(low), 4)}, {mp.nstr(mp.mpf(high), 4)}]"
    print(f"{name}: {interval}, error 2^{mp.nstr(mp.log(worst, 2), 4)}")
    print("    " + ", ".join(mp.nstr(x, 9 if bits == 24 else 17) for x in c), flush=True)


def fit_quotient(name, function, high, above, below, points=160):
    """P(x^2)/Q(x^2) on [0, high], P(0) = Q(0) = 1: least squares, each time divided by the Q before (Sanathanan, Koerner, 1963)
    and with the weights multiplied by the errors (Lawson, 1961)."""
    xs = [mp.mpf(high) * (1 - mp.cos(mp.pi * i / points)) / 2 for i in range(1, points + 1)]
    squares, values = [x * x for x in xs], [function(x) for x in xs]
    powers = [[t ** (j + 1) for j in range(max(above, below))] for t in squares]
    weights, denominators, best = [one] * points, [one] * points, None
    unknowns = above + below
    for step in range(60):
        a, b = mp.matrix(unknowns, unknowns), mp.matrix(unknowns, 1)
        for t, f, w, q in zip(powers, values, weights, denominators):
            row = [x / (f * q) for x in t[:above]] + [-x / q for x in t[:below]]
            for i in range(unknowns):
                b[i] += w * row[i] * (f - 1) / (f * q)
                for j in range(unknowns):
                    a[i, j] += w * row[i] * row[j]
        solution = list(mp.lu_solve(a, b))
        p, q = [one] + solution[:above], [one] + solution[above:]
        denominators = [mp.polyval(q[::-1], t) for t in squares]
        error = [abs(mp.polyval(p[::-1], t) / d / f - 1) for t, d, f in zip(squares, denominators, values)]
        worst = max(error)
        if best is None or worst < best[0]:
            best = worst, p, q
        if step > 5:
            weights = [w * (e / worst + mp.mpf("1e-3")) for w, e in zip(weights, error)]
            weights = [w * points / mp.fsum(weights) for w in weights]
    print(f"{name}: [0, {high}], error 2^{mp.nstr(mp.log(best[0], 2), 4)}")
    for c in best[1:]:
        print("    " + ", ".join(mp.nstr(rounded(x, 24), 9) for x in c), flush=True)


def series(closed, terms):
    """closed(x), or its Taylor series where closed would cancel."""
    return lambda x: closed(x) if abs(x) > mp.mpf("1e-10") else mp.polyval(terms[::-1], x)


third, sixth, one = mp.mpf(1) / 3, mp.mpf(1) / 6, mp.mpf(1)
h, m = mp.log(2) / 2 * mp.mpf("1.0005"), third * mp.mpf("1.0001")
exp2 = series(lambda x: (mp.expm1(x) - x) / x**2, [one / 2, sixth, one / 24])
exp3 = series(lambda x: ((mp.expm1(x) - x) / x**2 - one / 2) / x, [sixth, one / 24, one / 120])
log3 = series(lambda x: (mp.log1p(x) - x + x * x / 2) / x**3, [third, -one / 4, one / 5])
log2 = series(lambda x: mp.log1p(x) / x / mp.log(2), [1 / mp.log(2), -1 / mp.log(4)])
log01 = series(lambda x: (mp.log1p(x) - x) / x**2, [-one / 2, third, -one / 4])
square = lambda x: max(x * x, mp.mpf("0.001"))
zero, quarter = mp.mpf("1e-9"), (mp.pi / 4 * mp.mpf("1.0002")) ** 2

fit("expm1 f32: (e^r-1-r)/r^2", exp2, lambda x: max(abs(x), mp.mpf("0.02")), -h, h, 5, 24)
fit("expm1 f64: ((e^r-1-r)/r^2-1/2)/r", exp3, square, -h, h, 10, 53)
fit("log f32: (log(1+f)-f+f^2/2)/f^3", log3, square, -m, m, 8, 24)
fit("log f64", log3, square, -m, m, 18, 53)
fit("softplus f32: (log(1+e)-e)/e^2", log01, lambda x: square(x) / mp.log1p(x + mp.mpf("1e-4")),
    mp.mpf("1e-12"), 1, 10, 24)
fit("erf f32 near, in a^2: erf(a)/a-1", lambda t: mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1, lambda t: one,
    mp.mpf("1e-12"), mp.mpf("0.81"), 7, 24)
fit("erf f32 far: -log(erfc(a))/a", lambda x: -mp.log(mp.erfc(x)) / x,
    lambda x: x * mp.erfc(x) / mp.erf(x) + mp.mpf("1e-4") * mp.erfc(x) ** mp.mpf("0.25"),
    mp.mpf("0.9"), mp.mpf("3.93"), 8, 24)
fit("sin f32, in r^2: (sin(r)/r-1)/r^2", lambda t: (mp.sin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t,
    lambda t: max(t, mp.mpf("0.01")), zero, quarter, 3, 24)
fit("cos f32, in r^2: (cos(r)-1+r^2/2)/r^4", lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2, square,
    zero, quarter, 3, 24)
wide = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
fit("sin f64", lambda t: (mp.sin(mp.sqrt(t)) / mp.sqrt(t) - 1) / t, lambda t: max(t, mp.mpf("0.01")), mp.mpf("1e-12"), wide, 7, 53)
fit("cos f64", lambda t: (mp.cos(mp.sqrt(t)) - 1 + t / 2) / t**2, lambda t: t * t, mp.mpf("1e-12"), wide, 6, 53)
fit("erf f64 near, in a^2: erf(a)/a-1", lambda t: mp.erf(mp.sqrt(t)) / mp.sqrt(t) - 1, lambda t: one, mp.mpf("1e-12"), 1, 13, 53)
fit("pow: log2(1+f)/f", log2, lambda x: 1 / log2(x), -m, m, 12, 53)
fit("pow: 2^x", lambda x: mp.power(2, x), lambda x: mp.power(2, -x),
    mp.mpf("-0.5001"), mp.mpf("0.5001"), 7, 53)
fit_quotient("tanh f32: tanh(x)/x", lambda x: mp.tanh(x) / x, "9.02", 4, 4)
