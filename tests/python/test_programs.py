"""Programs that mutate, from Python: values and gradients beside the same written with NumPy; gradients that called ops state."""
import numpy as np
import pytest

import xhat

RANDOM = np.random.default_rng(5)
X, U, ROW, SQUARE = RANDOM.standard_normal((5, 3)), RANDOM.standard_normal(5), RANDOM.standard_normal(3), RANDOM.standard_normal((4, 4))


def nested(x, u, k):
    a, n, flag, total = u.copy(), 0, False, 0.0
    for i in range(len(u)):
        for j in range(i, len(u)):
            if j % 2 == k % 2:
                a[j] = np.sin(a[i]) + x[j, 0]
                n += 1
            else:
                total, flag = total + a[i] * a[j], not flag
    return a, n, flag, total


def aliases(x):
    a = x.copy()
    v = w = a[1]
    for i in range(len(x)):
        v += a[i]
        a[i] = w * 2
        a = a + 1
    return a, v * 1, w * 1


def overlapping(x, k):
    a = x.copy()
    for _ in range(k):
        a[1:] = a[:-1] * 0.5 + a[1:]
        a[::2] *= 1.1
        a[-2:] = a[:2].copy()
    return a


def inverse(m):
    a = m.copy()
    for k in range(len(a)):
        pivot, a[k, k] = a[k, k], 1.0
        a[k] = a[k] / pivot
        for i in range(len(a)):
            if i != k:
                q, a[i, k] = a[i, k], 0.0
                a[i] -= q * a[k]
    return a


def pivoted(m, b):
    a, b, n = m.copy(), b.copy(), len(b)
    for k in range(n):
        p = k + int(np.argmax(np.abs(a[k:, k])))
        a[[k, p]], b[[k, p]] = a[[p, k]], b[[p, k]]
        for i in range(k + 1, n):
            q = a[i, k] / a[k, k]
            a[i] -= q * a[k]
            b[i] -= q * b[k]
    x = np.zeros(n)
    for i in reversed(range(n)):
        x[i] = (b[i] - a[i, i + 1:] @ x[i + 1:]) / a[i, i]
    return x


def warped(x, y):
    d = np.full((len(x) + 1, len(y) + 1), 1e3)
    d[0, 0] = 0
    for i in range(1, len(x) + 1):
        for j in range(1, len(y) + 1):
            d[i, j] = (x[i - 1] - y[j - 1]) ** 2 + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[-1, -1]


def newton(a):
    roots = np.zeros_like(a)
    for i in range(len(a)):
        y = 1.0
        for _ in range(30):
            if abs(y * y - a[i]) <= 1e-10:
                break
            y = 0.5 * (y + a[i] / y)
        roots[i] = y
    return roots


def collatz(x, n):
    s, c = x.copy(), 0
    while n != 1 and c < 100:
        s, n = (np.tanh(s + 0.1), n // 2) if n % 2 == 0 else (s * 1.1, 3 * n + 1)
        c += 1
    return s, n, c


def chase(x, ids):
    j, s = 0, 0.5
    for _ in range(20):
        s += x[j] * np.sin(s)
        j = ids[j]
    return s, j


def largest(x):
    a, v, places = x.copy(), np.zeros(3), np.zeros(3, np.int64)
    for k in range(3):
        places[k] = np.argmax(a)
        v[k], a[places[k]] = a[places[k]], -np.inf
    return v, places


def sorted_by_swaps(x):
    return np.sort(x)


def histogram(ids, w):
    h = np.zeros(4)
    for k, i in enumerate(ids):
        h[i] += w[k] * (1 + h[i])
    return h


PROGRAMS = [
    (nested, """prog p(x: f64[N,M], u: f64[N], k: i32) -> (a, n, flag, total) {
       var a = clone(u)
       var n = i64(0)
       var flag = false
       var total = f64(0)
       for i in 0..N { for j in i..N {
         if j % 2 == i64(k) % 2 { a[j] = sin(a[i]) + x[j,0]; n += 1 } else { total = total + a[i]*a[j]; flag = !flag }
       } }
     }""", [X, U, 1]),
    (aliases, """prog p(x: f64[N,M]) -> (a, v2, w2) {
       var a = clone(x)
       var v = a[1]
       var w = v
       for i in 0..N { v += a[i]; a[i] = w*2; a = a + 1 }
       v2 = v * 1
       w2 = w * 1
     }""", [X]),
    (overlapping, """prog p(x: f64[N], k: i32) -> (a) {
       var a = clone(x)
       for t in 0..k { a[1:] = a[:-1]*0.5 + a[1:]; a[::2] *= 1.1; a[-2:] = a[:2] }
     }""", [U, 3]),
    (inverse, """prog p(a: inout f64[N,N]) -> () {
       for k in 0..N {
         pivot = a[k,k] * 1
         a[k,k] = 1.0
         a[k] = a[k] / pivot
         for i in 0..N { if i != k { q = a[i,k] * 1; a[i,k] = 0.0; a[i] -= q*a[k] } }
       }
     }""", [SQUARE + 3 * np.eye(4)]),
    (pivoted, """prog p(m: f64[N,N], b0: f64[N]) -> (x) {
       var a = clone(m)
       var b = clone(b0)
       for k in 0..N {
         p = argmax(i in 0..N: if i < k then -1 else abs(a[i,k]))
         t = clone(a[k])
         a[k] = a[p]
         a[p] = t
         s = b[k] * 1
         b[k] = b[p]
         b[p] = s
         for i in k+1..N { q = a[i,k]/a[k,k]; a[i] = a[i] - q*a[k]; b[i] -= q*b[k] }
       }
       var x = zeros f64[N]
       for q in 0..N { i = N-1-q; x[i] = (b[i] - sum(j in i+1..N: a[i,j]*x[j]))/a[i,i] }
     }""", [SQUARE, U[:4]]),
    (warped, """prog p(x: f64[N], y: f64[M]) -> (d) {
       var D = full(1000) f64[N+1,M+1]
       D[0,0] = 0
       for i in 1..N+1 { for j in 1..M+1 { D[i,j] = (x[i-1]-y[j-1])^2 + min(D[i-1,j], min(D[i,j-1], D[i-1,j-1])) } }
       d = D[N,M]
     }""", [U, ROW]),
    (newton, """prog p(a: f64[N]) -> (roots) {
       var roots = zeros f64[N]
       for i in 0..N {
         var y = f64(1)
         while abs(y*y - a[i]) > 1e-10 max 30 { y = 0.5*(y + a[i]/y) }
         roots[i] = y
       }
     }""", [np.abs(U) + 0.5]),
    (collatz, """prog p(x: f64[N], n0: i32) -> (s, n, c) {
       var s = clone(x)
       var n = n0
       var c = i32(0)
       while n != 1 && c < 100 max 200 {
         if n % 2 == 0 { n = n / 2; s = tanh(s + 0.1) } else { n = 3*n + 1; s = s * 1.1 }
         c += 1
       }
     }""", [U, 7]),
    (chase, """prog p(x: f64[N], ids: i32[N]) -> (s, j) {
       var j = i32(0)
       var s = f64(0.5)
       for t in 0..20 { s += x[j]*sin(s); j = ids[j] }
     }""", [U, np.array([2, 0, 4, 1, 3], np.int32)]),
    (largest, """prog p(x: f64[N]) -> (v, places) {
       var a = clone(x)
       var v = zeros f64[3]
       var places = zeros i64[3]
       for k in 0..3 { m = argmax(i: a[i]); places[k] = m; v[k] = a[m]; a[m] = -inf }
     }""", [U]),
    (sorted_by_swaps, """prog p(x: f64[N]) -> (a) {
       var a = clone(x)
       for i in 0..N { for j in 0..N-1 { if a[j+1] < a[j] { t = a[j] * 1; a[j] = a[j+1]; a[j+1] = t } } }
     }""", [U]),
    (histogram, """prog p(ids: i32[N], w: f64[N]) -> (h) {
       var h = zeros f64[4]
       for i in 0..N { h[ids[i]] += w[i]*(1 + h[ids[i]]) }
     }""", [np.array([0, 3, 3, 1, 0], np.int32), U]),
]


def several(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("fuse", ["full", "off"])
@pytest.mark.parametrize("python, text, arguments", PROGRAMS, ids=[p[0].__name__ for p in PROGRAMS])
def test_what_numpy_computes_and_its_slopes(python, text, arguments, fuse):
    op = xhat.op(text, fuse=fuse)
    outputs, kept = op.forward(*arguments)
    outputs, expected = several(outputs), several(python(*arguments))
    for y, z in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-12)
    cotangents = [RANDOM.standard_normal(np.shape(y)) for y in outputs if np.asarray(y).dtype.kind == "f"]
    gradients = dict(zip(op.gradients, several(op.backward(kept, *cotangents)), strict=True))
    for name, argument in zip(op.inputs, list(arguments)):
        if np.asarray(argument).dtype.kind != "f":
            continue
        direction, step = RANDOM.standard_normal(np.shape(argument)), 1e-6

        def along(h):
            moved = [a + h * direction if a is argument else a for a in arguments]
            floats = [z for z, y in zip(several(python(*moved)), outputs) if np.asarray(y).dtype.kind == "f"]
            return sum(float(np.sum(d * z)) for d, z in zip(cotangents, floats))

        slope = (along(step) - along(-step)) / (2 * step)
        assert np.sum(gradients[f"grad_{name}"] * direction) == pytest.approx(slope, rel=1e-5, abs=1e-6)


STATED = {
    "grad": "op f(x: f64[N]) -> (y) { y[i] = x[i]^2 }\ngrad f(x, dy) -> (dx) { dx[i] = 100*dy[i] }\n",
    "backward": "op f(x: f64[N]) -> (y) { y[i] = x[i]^2 } backward (dy: f64[N]) -> (grad_x) { grad_x[i] = 100*dy[i] }\n",
}
CALLERS = {
    "op": "op g(x: f64[N]) -> (z) { y = f(x); z[i] = y[i] * 2 }",
    "straight": "prog g(x: f64[N]) -> (z) { z = f(x) * 2.0 }",
    "for": "prog g(x: f64[N]) -> (z) { var z = clone(x); for t in 0..1 { z = f(x) * 2.0 } }",
    "for of data": "prog g(x: f64[N], k: i32) -> (z) { var z = clone(x); for t in 0..k { z = f(z) * 2.0 } }",
    "independent": "prog g(x: f64[N]) -> (z) { var z = zeros f64[4,N]; for t in 0..4 { z[t] = f(x) * 0.5 } }",
    "if": "prog g(x: f64[N], k: i32) -> (z) { var z = clone(x); if k > 0 { z = f(x) * 2.0 } else { z = x * 1 } }",
    "if in for": "prog g(x: f64[N], k: i32) -> (z) { var z = clone(x); for t in 0..k { if z[0] > 0 { z = f(z) * 2.0 } } }",
    "while": "prog g(x: f64[N], k: i32) -> (z) { var z = clone(x); var n = clone(k); while n > 0 max 10 { z = f(z) * 2.0; n -= 1 } }",
    "prog of prog": "prog h(x: f64[N], k: i32) -> (z) { var z = clone(x); for t in 0..k { z = f(z) * 2.0 } }\n"
                    "prog g(x: f64[N], k: i32) -> (w) { w = h(x, k) + 0.0 }",
    "op of prog": "prog h(x: f64[N]) -> (z) { z = f(x) * 2.0 }\nop g(x: f64[N]) -> (w) { z = h(x); w[i] = z[i] }",
}


@pytest.mark.parametrize("stated", STATED)
@pytest.mark.parametrize("caller", CALLERS)
def test_what_a_called_op_states_is_its_gradient(stated, caller):
    op = xhat.op(STATED[stated] + CALLERS[caller])
    x, k = np.array([1.0, 2, 3]), [1] if "k" in op.inputs else []
    y, kept = op.forward(x, *k)
    np.testing.assert_allclose(op.backward(kept, np.ones_like(y)), [200, 200, 200])
    np.testing.assert_allclose(np.sum(op.jvp(x, *k, np.ones(3))[1]), np.size(y) * (200 if caller != "independent" else 50))


def test_a_backward_block_keeps_its_own_and_lacks_gradients_by_name():
    text = """op f(x: f64[N], s: f64) -> (y, z) {
      e[i] = exp(x[i])
      z = sum(i: e[i])
      y[i] = s*e[i]/z
    } backward (dy: f64[N], dz: f64) -> (grad_x) {
      d = sum(i: dy[i]*y[i])
      grad_x[i] = y[i]*dy[i] - d*e[i]/z + dz*e[i]
    }
    prog g(x: f64[N], s: f64%s) -> (w) { var w = clone(x); for t in 0..12 { (a, b) = f(w, s); w = 0.1*a*log(b) + 0.5*w } }"""

    def python(x):
        for _ in range(12):
            e = np.exp(x)
            x = 0.2 * e / e.sum() * np.log(e.sum()) + 0.5 * x
        return x

    op = xhat.op(text % " const")
    x, d = np.array([0.1, 0.2, -0.3]), np.array([1, -2, 0.5])
    w, kept = op.forward(x, 2)
    np.testing.assert_allclose(w, python(x))
    slope = np.sum((python(x + 1e-6 * d) - python(x - 1e-6 * d)) / 2e-6)
    assert np.sum(op.backward(kept, np.ones(3)) * d) == pytest.approx(slope, rel=1e-6)
    with pytest.raises(xhat.Error, match="the backward block of f has no gradient of s, and a call of f asks for one; add grad_s to it"):
        xhat.op(text % "").forward(x, 2)
    assert xhat.op(text.split("prog")[0] + "op g(x: f64[N]) -> (w) { (a, b) = f(x, 2); w[i] = a[i]*b }").check()


def test_the_gradient_of_the_tangents_is_a_hessian_product():
    op = xhat.op("""prog p(x: f64[N], u: f64[N]) -> (s) {
      var h = clone(x)
      for t in 0..20 { h = sin(h*u) + x*0.3 }
      s = sum(i: h[i]^2*x[i])
    }""")
    with pytest.raises(xhat.Error, match="the gradient of its jvp, with the cotangents of the outputs for those of the tangents, is that product"):
        op.hvp
    x, u, v, w = RANDOM.standard_normal((4, 4))
    _, kept = op.jvp.forward(x, u, v, w)
    products = op.jvp.backward(kept, np.float64(0), np.float64(1))[:2]

    def gradients(h):
        return op.backward(op.forward(x + h * v, u + h * w)[1])

    for product, after, before in zip(products, gradients(1e-6), gradients(-1e-6)):
        np.testing.assert_allclose(product, (after - before) / 2e-6, rtol=1e-5, atol=1e-7)
