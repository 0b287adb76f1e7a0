#!/usr/bin/env python3
"""Writes tests/kernels/special_values.inc: values of functions that the standard library has not, in 40 digits, rounded to f64.

    pip install mpmath && python3 tools/special_values.py > tests/kernels/special_values.inc
"""
import mpmath as mp

mp.mp.dps = 40
rows = [
    ("erfinv", lambda a, b: mp.erfinv(a), [(x, 0) for x in (1e-10, 0.001, 0.3, -0.7, 0.95, -0.999, 0.9999999, 0.999999999999)]),
    ("digamma", lambda a, b: mp.digamma(a), [(x, 0) for x in (1e-5, 0.1, 0.9, 1.4, 1.5, 3.25, 9.5, 100, 1e10, -0.5, -3.3)]),
    ("polygamma", lambda a, b: mp.psi(int(a), b), [(n, x) for n in (1, 2, 3, 4) for x in (0.01, 0.7, 2.5, 30)] + [(1, -1.3), (2, -2.7), (3, -1.3), (4, -0.6)]),
    ("i0e", lambda a, b: mp.besseli(0, a) * mp.exp(-abs(a)), [(x, 0) for x in (1e-3, 1, -5, 7.7, 7.8, 50, 700, 1e5)]),
    ("i1e", lambda a, b: mp.besseli(1, a) * mp.exp(-abs(a)), [(x, 0) for x in (1e-3, 1, -5, 7.7, 7.8, 50, 700, 1e5)]),
    ("sinc", lambda a, b: mp.sinc(mp.pi * a), [(x, 0) for x in (1e-5, 0.25, 0.6, -1.3, 10.75, 1000.3)]),
    ("erfc", lambda a, b: mp.erfc(a), [(x, 0) for x in (-3, -0.1, 0.4, 2, 10, 25)]),
    ("lgamma", lambda a, b: mp.log(abs(mp.gamma(a))), [(x, 0) for x in (1e-5, 0.3, 1.2, 1.999, 2.7, 12, 1e8, -0.5, -10.4)]),
    ("logaddexp", lambda a, b: mp.log(mp.exp(a) + mp.exp(b)), [(0, 0), (1000, 999), (-700, -730), (3, -5)]),
]
for name, f, points in rows:
    for a, b in points:
        value = f(mp.mpf(a), mp.mpf(b))
        print("    {\"%s\", %r, %r, %s}," % (name, float(a), float(b), mp.nstr(value, 20)))
