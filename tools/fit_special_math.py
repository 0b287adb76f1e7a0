#!/usr/bin/env python3
"""Writes runtime/emit/special_coefficients.h: the polynomials of the functions in runtime/emit/vector_inverse.cpp and
vector_special.cpp, as weighted Remez fits in 60 digits, then rounded.

    pip install mpmath && python3 tools/fit_special_math.py > runtime/emit/special_coefficients.h     # minutes

The comment above each table is the function, the interval, and log2 of the largest weighted error after rounding.
"""
import sys

import mpmath as mp

from remez import remez, rounded

only = sys.argv[1:]


def fit(name, text, function, low, high, single, double, weight=None):
    """function(x) on [low, high] by `single` coefficients in f32 and `double` in f64 (0: none), relative unless weight is given."""
    if only and name not in only:
        return
    values = {}

    def f(x):
        if x not in values:
            values[x] = function(x)
        return values[x]

    w = weight or (lambda x: 1 / f(x))
    for suffix, count, bits in (("f32", single, 24), ("f64", double, 53)):
        if not count:
            continue
        c = [rounded(x, bits) for x in remez(f, w, low, high, count, points=max(400, 30 * count))]
        xs = [mp.mpf(low) + (mp.mpf(high) - low) * i / 501 for i in range(502)]
        worst = max(abs((mp.polyval(c[::-1], x) - f(x)) * w(x)) for x in xs)
        low_text, high_text = (mp.nstr(mp.mpf(x), 6) for x in (low, high))
        print(f"// {text} on [{low_text}, {high_text}], 2^{mp.nstr(mp.log(worst, 2), 4)}")
        print(f"inline const std::vector<double> {name}_{suffix} = {{")
        digits = 9 if bits == 24 else 17
        line = "   "
        for k, x in enumerate(c):
            item = " " + mp.nstr(x, digits) + ("," if k + 1 < len(c) else "};")
            if len(line) + len(item) > 150:
                print(line)
                line = "   "
            line += item
        print(line, flush=True)
    print()


def near_zero(closed, terms, below="1e-8"):
    """closed(x), or its Taylor series where closed would cancel."""
    return lambda x: closed(x) if abs(x) > mp.mpf(below) else mp.polyval(terms[::-1], x)


one, pi, tiny = mp.mpf(1), mp.pi, mp.mpf("1e-20")
root = mp.sqrt

print("""// Written by tools/fit_special_math.py; the coefficient of x^0 first.
#pragma once
#include <vector>

namespace xhat::vmath::fits {

// clang-format off""")

quarter = (pi / 4 * mp.mpf("1.0002")) ** 2
fit("sin_quarter", "(sin(r)/r - 1)/t, t = r^2,",
    lambda t: (mp.sin(root(t)) / root(t) - 1) / t, tiny, quarter, 0, 6, lambda t: t)
fit("cos_quarter", "(cos(r) - 1)/t, t = r^2,", lambda t: (mp.cos(root(t)) - 1) / t, tiny, quarter, 0, 7, lambda t: t)
fit("sinh_small", "(sinh(x)/x - 1)/t, t = x^2,", lambda t: (mp.sinh(root(t)) / root(t) - 1) / t, tiny, 1, 4, 8, lambda t: t)
fit("asin_small", "(asin(x)/x - 1)/t, t = x^2,",
    lambda t: (mp.asin(root(t)) / root(t) - 1) / t, tiny, mp.mpf("0.2501"), 5, 14, lambda t: max(t, mp.mpf("0.01")))
fit("atan_small", "(atan(x)/x - 1)/t, t = x^2,",
    lambda t: (mp.atan(root(t)) / root(t) - 1) / t, tiny, 1, 9, 20, lambda t: max(t, mp.mpf("0.05")))


# erfc(x) e^(x^2) (1 + 2 x), x = c (1 + t)/(1 - t), so that [0, inf) is [-1, 1).
def erfcx(x):
    return mp.erfc(x) * mp.exp(x * x)


def half_line(f, c):
    return lambda t: f(c * (1 + t) / (1 - t))


erfc_center = mp.mpf(2)
scaled_erfc = half_line(lambda x: erfcx(x) * (1 + 2 * x), erfc_center)
fit("erfc_scaled", "erfc(x) e^(x^2) (1 + 2 x), t = (x-2)/(x+2),", scaled_erfc, -1,
    (mp.mpf(28) - erfc_center) / (mp.mpf(28) + erfc_center), 11, 25)


# erfinv(x)/x in w = -log(1 - x^2), then in sqrt(w).
def erfinv_of(w):
    if w < mp.mpf("1e-12"):
        return root(pi) / 2 * (1 + w * (pi / 12 - mp.mpf(0)))
    x = root(-mp.expm1(-w))
    q = 1 - x if w < 8 else mp.exp(-w) / (1 + x)
    # Newton on log erfc, from the tail's first term
    y = root(w) * mp.mpf("0.8") if w < 4 else root(w - mp.log(root(w) * root(pi)))
    for _ in range(60):
        step = (mp.erfc(y) - q) / (2 / root(pi) * mp.exp(-y * y))
        y += step / (1 - y * step) if abs(y * step) < mp.mpf("0.9") else step / 2
        if abs(step) < mp.mpf("1e-50"):
            break
    return y / x


fit("erfinv_centre", "erfinv(x)/x, w = -log(1 - x^2) - 2.5,", lambda v: erfinv_of(v + mp.mpf("2.5")), -mp.mpf("2.5") + tiny, mp.mpf("2.5"), 9, 0)
fit("erfinv_tail", "erfinv(x)/x, v = sqrt(w) - 3,", lambda v: erfinv_of((v + 3) ** 2), root(mp.mpf(5)) - 3, mp.mpf("1.1"), 9, 0)
fit("erfinv_centre", "erfinv(x)/x, w - 3.125,", lambda v: erfinv_of(v + mp.mpf("3.125")), -mp.mpf("3.125") + tiny, mp.mpf("3.125"), 0, 23)
fit("erfinv_middle", "erfinv(x)/x, sqrt(w) - 3.25,", lambda v: erfinv_of((v + mp.mpf("3.25")) ** 2), -mp.mpf("0.75"), mp.mpf("0.75"), 0, 19)
fit("erfinv_tail", "erfinv(x)/x, sqrt(w) - 5,", lambda v: erfinv_of((v + 5) ** 2), -1, mp.mpf("1.1"), 0, 17)

# lgamma(2 + u) = u (1 + u) P(u); digamma(1 + u) = (u - u0) P(u)
fit("lgamma_near", "lgamma(2 + u)/(u (1 + u))",
    lambda u: mp.loggamma(2 + u) / (u * (1 + u)) if abs(u) > mp.mpf("1e-30") else mp.digamma(2), -mp.mpf("0.5"), mp.mpf("0.5"), 0, 19)
psi_root = mp.findroot(mp.digamma, mp.mpf("1.4616321449683623"))
high = rounded(psi_root, 53)
print(f"// digamma's positive root, in two parts\ninline constexpr double digamma_root[] = {{{mp.nstr(high, 17)}, {mp.nstr(rounded(psi_root - high, 53), 17)}}};")
fit("digamma_near", "digamma(1.5 + u)/(1.5 + u - root)",
    lambda u: mp.digamma(u + one * 3 / 2) / (u + one * 3 / 2 - psi_root) if abs(u + one * 3 / 2 - psi_root) > mp.mpf("1e-30") else mp.psi(1, psi_root),
    -mp.mpf("0.5"), mp.mpf("0.5"), 0, 22)

# Modified Bessel functions; a = x^2/4 up to x = 7.75, 1/x beyond.
split = mp.mpf("7.75")
a_high = split * split / 4
fit("i0_small", "I0(x), a = x^2/4,", lambda a: mp.besseli(0, 2 * root(a)), 0, a_high, 10, 15)
fit("i1_small", "I1(x)/(x/2), a = x^2/4,", lambda a: mp.besseli(1, 2 * root(a)) / root(a) if a > 0 else one, 0, a_high, 10, 15)


def large(order):
    return lambda v: (mp.besseli(order, 1 / v) * mp.exp(-1 / v) * root(1 / v)) if v > mp.mpf("1e-4") else asymptotic(order, v)


def asymptotic(order, v):
    mu, term, total = mp.mpf(4 * order * order), one, one
    for k in range(1, 14):
        term *= -(mu - (2 * k - 1) ** 2) * v / (8 * k)
        total += term
    return total / root(2 * pi)


middle = mp.mpf("0.0645")
for order in (0, 1):
    fit(f"i{order}_large", f"I{order}(x) e^-x sqrt(x), v = 1/x - 0.0645,", lambda v, f=large(order): f(v + middle), -middle, 1 / split - middle, 7, 23)

print("""// clang-format on

}  // namespace xhat::vmath::fits""")
