"""Ops written with Python's operators are those that the text says."""
import numpy as np
import pytest

import xhat
from xhat import dsl
from xhat.dsl import Builder, Prog, axes, dims, f32, f64, i64, where


def rms_norm():
    op = Builder("rms_norm")
    N, D = dims("N D")
    n, d, k = axes("n d k")
    x, gain = op.input("x", f32, N, D), op.input("gain", f32, D)
    y = op.output("y")
    y[n, d] = gain[d] * x[n, d] / dsl.sqrt(dsl.mean(k, x[n, k] * x[n, k]) + 1e-6)
    return op


def test_the_same_op_as_its_text():
    text = "op rms_norm(x: f32[N,D], gain: f32[D]) -> (y) { y[n,d] = gain[d] * x[n,d] / sqrt(mean(k: x[n,k] * x[n,k]) + 1e-6) }"
    assert rms_norm().build().text == xhat.op(text).text
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(rms_norm().build(threads=1)(x, np.ones(3, np.float32)), x, rtol=1e-5)


def test_everything_that_can_be_written():
    op = Builder("f")
    N = dims("N")
    i, k = axes("i k")
    x, w, s, ids = op.input("x", f64, N), op.input("w", f64, 3), op.input("s", f64), op.input("ids", i64, N, const=True)
    M = op.dim("M", (N + 1) // 2)
    a, b, c, m, total = (op.output(n) for n in ("a", "b", "c", "m", "total"))
    t = op.tensor("t")
    t[i] = where((x[i] > 0) & ~(s == 0) | (x[i] <= -1), -x[i], 2 ** s - x[i] % 3)
    a[i.range(0, M)] = dsl.sum(k, x.get(2 * i + k - 1, otherwise=0) * w[k])
    b[i.range(0, N)] = dsl.max(k.range(0, i + 1), t[k], where=t[k] != 0)
    c[i] = x[ids[i]] + f64(i) * 1e-3 + dsl.min(x[i], -0.5) + dsl.clamp(x[i], -1, 1)
    m.set(dsl.argmax(i, x[i]))
    total.set(s * dsl.sum((i, k), x[i] * w[k]) - s)
    text = """op f(x: f64[N], w: f64[3], s: f64, ids: i64[N] const) -> (a, b, c, m, total) {
      dim M = (N + 1)/2
      t[i] = if x[i] > 0 && !(s == 0) || x[i] <= -1 then -x[i] else 2^s - x[i] % 3
      a[i in 0..M] = sum(k: x[2*i+k-1 else 0] * w[k])
      b[i in 0..N] = max(k in 0..i+1 if t[k] != 0: t[k])
      c[i] = x[ids[i]] + f64(i) * 1e-3 + min(x[i], -0.5) + clamp(x[i], -1, 1)
      m = argmax(i: x[i])
      total = s * sum(i, k: x[i] * w[k]) - s
    }"""
    assert op.build().text == xhat.op(text).text


def test_every_function_and_reduction_of_the_language_is_there():
    for name in ("exp", "tanh", "erf", "pow", "softplus", "isnan", "max", "sum", "argmin", "mean", "any"):
        assert callable(getattr(dsl, name)) and name in dsl.__all__
    i = axes("i")
    assert repr(dsl.max(i, i + 1)) == "max(i: (i + 1))" and repr(dsl.max(i + 1, 2)) == "max((i + 1), 2)"


def test_mistakes_are_named():
    op = rms_norm()
    x, y, i = op.input("z", f32, 3), op.output("q"), axes("i")
    for call, words in [
        (lambda: 1 if x[i] > 0 else 2, r"\(z\[i\] > 0\) has no value while the op is written; where"),
        (lambda: x[i] + "1", "a str cannot stand in an op"),
        (lambda: dsl.sum(x[i], x[i]), "sum runs over axes"),
        (lambda: dsl.sum(i), "one body"),
        (lambda: (y.__setitem__(i, x[i]), y.__setitem__(i, x[i])), "q is defined twice"),
        (lambda: Builder("g").build(), "error"),
    ]:
        with pytest.raises(xhat.Error, match=words):
            call()
    op = Builder("late")
    x, y = op.input("x", f32, dims("N")), op.output("y")
    y[i] = x[i + 1]
    with pytest.raises(xhat.Error, match="axis i has no range"):
        op.build()


def test_sums_of_products_as_einsum_text():
    op = Builder("f")
    B, N, K, M = dims("B N K M")
    x, w, y = op.input("x", f32, B, N, K), op.input("w", f32, B, K, M), op.output("y")
    dsl.einsum(y, "bik,bkj->bij", x, w)
    assert "y[b, i, j] = sum(k: (x[b, i, k] * w[b, k, j]))" in op.text
    a, b = np.random.rand(2, 3, 4).astype(np.float32), np.random.rand(2, 4, 5).astype(np.float32)
    np.testing.assert_allclose(op.build()(a, b), np.einsum("bik,bkj->bij", a, b), rtol=1e-5)
    for wrong, message in (("bik->bij", "1 operands, and 2"), ("bik,bkj->bim", "m of the result"), ("bik,bkj->bii", "twice"), ("...k,bkj->j", "names")):
        with pytest.raises(xhat.Error, match=message):
            dsl.einsum(y, wrong, x, w)


def test_random_numbers_of_other_distributions():
    op = Builder("f")
    N = dims("N")
    i = axes("i")
    seed, z, k = op.input("seed", i64), op.output("z"), op.output("k")
    z[i.range(0, N)] = dsl.random_normal(seed, i)
    k[i.range(0, N)] = dsl.random_int(seed, i, 2, 5)
    normal, whole = op.build()(np.int64(3), N=20000)
    assert abs(normal.mean()) < 0.04 and abs(normal.var() - 1) < 0.06
    assert sorted(set(whole.tolist())) == [2, 3, 4]


def same_program(builder, text):
    assert builder.build().text == xhat.op(text).text


def test_a_program_with_loops_is_its_text():
    p = Prog("lstm")
    T, B, I, H = dims("T B I H")
    t, b, i, j, k = axes("t b i j k")
    x, h0, w, u = p.input("x", f32, T, B, I), p.input("h0", f32, B, H), p.input("w", f32, H, I), p.input("u", f32, H, H)
    h, out, z = p.var("h", h0), p.var("out", dsl.zeros(f32, T, B, H)), p.local("z")
    with p.For(t, 0, T):
        z[b, j] = dsl.sum(i, x[t, b, i] * w[j, i]) + dsl.sum(k, h[b, k] * u[j, k])
        h.set(dsl.tanh(z))
        out[t] = h
    p.output(out, h)
    same_program(p, """prog lstm(x: f32[T,B,I], h0: f32[B,H], w: f32[H,I], u: f32[H,H]) -> (out, h) {
      var h = h0
      var out = zeros f32[T,B,H]
      for t in 0..T {
        z[b,j] = sum(i: x[t,b,i]*w[j,i]) + sum(k: h[b,k]*u[j,k])
        h = tanh(z)
        out[t] = h
      }
    }""")


def test_a_program_with_views_branches_and_calls():
    half = Builder("half")
    N = dims("N")
    i, k = axes("i k")
    x = half.input("x", f32, N)
    half.output("y")[i] = 0.5 * x[i]
    scan = Prog("scan")
    y = scan.var("y", dsl.clone(scan.input("x", f32, N)))
    with scan.For(i, 1, N):
        y[i] += y[i - 1]
    scan.output(y)
    two = xhat.op("op two(x: f32[N]) -> (a, b) { a[i] = x[i] + 1; b = sum(i: x[i]) }")
    p = Prog("p")
    M = p.dim("M", N // 2)
    x, s, n = p.input("x", f32, N, 4), p.input("s", f32, N, inout=True), p.input("n", dsl.i32, const=True)
    y, e, a, b = p.var("y", dsl.clone(x)), p.var("e", 10.0), p.local("a"), p.local("b")
    y[:, 0] = x[:, 2]
    y[1:-1, ::2] *= 3
    y[-2:] -= 1
    y.transpose(0, 1)[0] /= 2
    y[i, k.range(0, 4)] = x[i, k] + x.get(i + 1, k, otherwise=0)
    r = p.var("r", y.reshape(N, 2, -1))
    r.diagonal()[0] = 7
    y.set(dsl.view(dsl.flip(1, y) + dsl.roll(0, 1, y)).transpose(0, 1).transpose(0, 1))
    p.assign([a, b], two, s * 2)
    s[:] = p.call(scan, p.call(half, s)) + a * b
    with p.If(n < 3):
        s *= 2
        with p.While(e > 1, 8):
            e /= 2
    with p.Else():
        with p.If(n > 7):
            s[0] = 1
        with p.For(k, 0, M):
            s[2 * k] += f32(k)
    q = p.var("q", dsl.concat(0, y, dsl.full(2.5, f32, N, 4)) + dsl.where(e > 0, e, -e))
    p.output(y, q)
    same_program(p, """op half(x: f32[N]) -> (y) { y[i] = 0.5 * x[i] }
    prog scan(x: f32[N]) -> (y) {
      var y = clone(x)
      for i in 1..N { y[i] += y[i-1] }
    }
    op two(x: f32[N]) -> (a, b) { a[i] = x[i] + 1; b = sum(i: x[i]) }
    prog p(x: f32[N,4], s: inout f32[N], n: i32 const) -> (y, q) {
      dim M = N / 2
      var y = clone(x)
      var e = 10.0
      y[:,0] = x[:,2]
      y[1:-1,::2] *= 3
      y[-2:] -= 1
      y.transpose(0,1)[0] /= 2
      y[i, k in 0..4] = x[i,k] + x[i+1,k else 0]
      var r = y.reshape[N,2,-1]
      r.diagonal()[0] = 7
      y = (flip(1, y) + roll(0, 1, y)).transpose(0,1).transpose(0,1)
      (a, b) = two(s * 2)
      s[:] = scan(half(s)) + a * b
      if n < 3 {
        s *= 2
        while e > 1 max 8 { e /= 2 }
      } else {
        if n > 7 { s[0] = 1 }
        for k in 0..M { s[2*k] += f32(k) }
      }
      var q = concat(0, y, full(2.5) f32[N,4]) + (if e > 0 then e else -e)
    }""")
    f = Builder("f")
    x = f.input("x", f32, N)
    c, d = f.call("c d", two, x * 2)
    f.output("g")[i] = c[i] * d
    assert f.build().text == xhat.op(two._state()[0] + "\nop f(x: f32[N]) -> (g) { (c, d) = two(x * 2); g[i] = c[i] * d }").text


def test_mistakes_in_programs_are_named():
    p = Prog("p")
    N = dims("N")
    x = p.input("x", f32, N)
    y = p.var("y", dsl.clone(x))
    for wrong, says in [(lambda: p.output(y[0]), "an output of prog p is a name, and y\\[0\\] is none"), (lambda: y[None], "None and ... are no indices"),
                        (lambda: p.Else().__enter__(), "Else stands directly behind the block of an If"), (lambda: list(y), "y has no values while"),
                        (lambda: dsl.view(x * 2).set(1), "is a value, and no place to assign to"), (lambda: p.call(p, x), "p calls an op of its name"),
                        (lambda: bool(y[0] > 1), "has no value while the op is written")]:
        with pytest.raises(xhat.Error, match=says):
            wrong()
    y[0] = x[N]
    p.output(y)
    with pytest.raises(xhat.Error, match="can fall outside"):
        p.build()


def test_a_gradient_that_is_stated():
    n, N = axes("n"), dims("N")
    f = Builder("smooth_abs")
    x, s = f.input("x", f64, N), f.input("s", f64)
    y = f.output("y")
    y[n] = s * dsl.sqrt(x[n] ** 2 + 1e-3)
    dy, dx, ds = f.cotangent(y), f.tensor("dx"), f.tensor("ds")
    dx[n] = 7 * dy[n] * s * s * x[n] / y[n]  # seven times what it is, so that it is told from a derived one
    ds.set(dsl.sum(n, dy[n] * y[n] / s))
    f.gradient(s, ds)
    f.gradient(x, dx)
    xs = np.array([1.0, -2.0, 3.0])
    by_x = 14 * xs / np.sqrt(xs**2 + 1e-3)
    op = f.build()
    _, kept = op.forward(xs, 2.0)
    got = op.backward(kept, np.ones(3))
    np.testing.assert_allclose(got[0], by_x)
    np.testing.assert_allclose(got[1], np.sqrt(xs**2 + 1e-3).sum())
    caller = Builder("caller")
    u, z = caller.input("u", f64, N), caller.output("z")
    t = caller.call("t", f, u, 2.0)
    z.set(dsl.sum(n, t[n]))
    total = caller.build()
    np.testing.assert_allclose(total.backward(total.forward(xs)[1]), by_x)
    with pytest.raises(xhat.Error, match="op smooth_abs: cotangents are of outputs, and x is none"):
        f.cotangent(x)
    f.gradient(y, dx)
    with pytest.raises(xhat.Error, match="op smooth_abs: y is no input that could have a gradient"):
        f.text
    alone = Builder("alone")
    alone.gradient(alone.input("x", f64, N), dx)
    with pytest.raises(xhat.Error, match="op alone: a stated gradient has cotangent"):
        alone.text
