"""Derivatives, options, reports, programs."""
import copy
import gc
import pickle
import threading
import time
import weakref

import numpy as np
import pytest

import xhat

TANH = "op scaled_tanh(x: f64[N], s: f64) -> (y) { y[i] = s * tanh(x[i]) }"
NORM = """op norm(x: f64[N,D], g: f64[D]) -> (y) {
  m[n] = sum(d: x[n,d]) / f64(D)
  v[n] = sum(d: (x[n,d] - m[n])^2) / f64(D)
  y[n,d] = g[d] * (x[n,d] - m[n]) / sqrt(v[n] + 1e-5)
}"""
DECAY = """prog decay(x: f64[T,N], a: f64) -> (out) {
  var h = zeros f64[N]
  var out = zeros f64[T,N]
  for t in 0..T {
    h[i] = a * tanh(h[i]) + x[t,i]
    out[t] = h
  }
}"""


def slope(f, x, v, step=1e-6):
    return (f(x + step * v) - f(x - step * v)) / (2 * step)


@pytest.mark.parametrize("text", [TANH, NORM, DECAY])
def test_backward_is_what_finite_differences_say(text):
    op, rng = xhat.op(text), np.random.default_rng(1)
    x = rng.normal(size={TANH: 7, NORM: (5, 6), DECAY: (6, 4)}[text])
    w = rng.normal(size=6) if text is NORM else np.array(0.7)
    y, kept = op.forward(x, w)
    np.testing.assert_allclose(y, op(x, w), rtol=1e-12)
    dy = rng.normal(size=y.shape)
    grad_x, grad_w = op.backward(kept, dy)
    vx, vw = rng.normal(size=x.shape), rng.normal(size=w.shape)
    np.testing.assert_allclose((grad_x * vx).sum(), slope(lambda a: (op(a, w) * dy).sum(), x, vx), rtol=1e-6)
    np.testing.assert_allclose((grad_w * vw).sum(), slope(lambda a: (op(x, a) * dy).sum(), w, vw), rtol=1e-6)


def test_products_with_derivatives_are_ops():
    op, rng = xhat.op(NORM), np.random.default_rng(2)
    x, g, tx, dy = (rng.normal(size=s) for s in [(5, 6), 6, (5, 6), (5, 6)])
    y, t = op.jvp(x, g, tx, np.zeros(6))
    np.testing.assert_allclose(t, slope(lambda a: op(a, g), x, tx), rtol=1e-5, atol=1e-8)
    y, gx, gg = op.vjp(x, g, dy)
    np.testing.assert_allclose((t * dy).sum(), (gx * tx).sum(), rtol=1e-9)
    hx, hg = op.hvp(x, g, dy, tx, np.zeros(6))
    np.testing.assert_allclose(hx, slope(lambda a: op.vjp(a, g, dy)[1], x, tx), rtol=1e-4, atol=1e-6)
    assert op.jvp.inputs == ["x", "g", "t_x", "t_g"] and op.hvp.outputs == ["hvp_x", "hvp_g"]
    only = op.with_options(wrt=["x"])
    assert only.gradients == ["grad_x"] and only.jvp.inputs == ["x", "g", "t_x"] and only.hvp.outputs == ["hvp_x"]


def test_what_loops_cannot_do_is_refused_by_name():
    op = xhat.op(DECAY)
    for product in ("vjp", "hvp"):
        with pytest.raises(xhat.Error, match="decay: .*loops"):
            getattr(op, product)
    assert op.jvp.inputs == ["x", "a", "t_x", "t_a"]


def test_options_are_those_of_the_tool():
    x = np.random.default_rng(3).normal(size=(4, 64))
    g = np.ones(64)
    bytes_kept = {}
    for stash in ("cost", "largest", "none"):
        op = xhat.op(NORM, stash=stash)
        bytes_kept[stash] = op.forward(x, g)[1].bytes
    assert bytes_kept["none"] == 0 < bytes_kept["cost"] < bytes_kept["largest"]
    with pytest.raises(xhat.Error, match="least|budget|bytes"):
        xhat.op(NORM, stash="budget=1", keep="").forward(x, g)
    _, kept = xhat.op(NORM, drop=["x"]).forward(x, g)
    assert "x" not in kept.names
    with pytest.raises(xhat.NonFinite, match="log"):
        xhat.op("op f(x: f64[N]) -> (y) { y[i] = log(x[i]) }", check_values=True)(np.array([0.0]))


def test_what_is_kept_lives_until_the_backward_is_done():
    op = xhat.op(TANH)
    x = np.ones(5)
    alive = weakref.ref(x)
    _, kept = op.forward(x, 2)
    del x
    gc.collect()
    assert alive() is not None and kept.names[0] == "x"
    grad_x, _ = op.backward(kept, np.ones(5))
    np.testing.assert_allclose(grad_x, 2 * (1 - np.tanh(1) ** 2))
    del kept
    gc.collect()
    assert alive() is None


def test_backward_of_another_op_is_refused():
    a, b = xhat.op(TANH), xhat.op(NORM)
    _, kept = a.forward(np.ones(3), 1.0)
    with pytest.raises(xhat.Error, match="of another op"):
        b.backward(kept, np.ones(3))


def test_reports():
    op = xhat.op(NORM)
    text = op.explain(N=8, D=16)
    assert "what the backward needs of the forward" in text and repr(text) == str(text)
    assert op.explain(as_json=True, N=8, D=16)["dims"] == {"N": 8, "D": 16}
    assert op.explain(pareto=True)
    assert op.check(N=3, D=5)
    wrong = xhat.op("op f(x: f64[N]) -> (y) { y[i] = x[i]^2 }\ngrad f(x, y, dy) -> (dx) { dx[i] = 3*x[i]*dy[i] }", name="f").check(N=3)
    assert not wrong and "WRONG" in wrong
    page = op.viz(run=False)
    assert page.html.startswith("<!") and page._repr_html_().startswith("<iframe srcdoc=")


def test_a_page_is_saved(tmp_path):
    page = xhat.op(TANH).viz(N=4)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html


def test_names():
    op = xhat.op(NORM)
    assert (op.name, op.inputs, op.outputs, op.dims) == ("norm", ["x", "g"], ["y"], ["N", "D"])
    assert repr(op) == "<xhat.op norm(x: f64[N,D], g: f64[D]) -> (y)>"
    assert xhat.op(op.text).text == op.text
    both = "op one(x: f32[N]) -> (y) { y[i] = x[i] }\nop two(x: f32[N]) -> (y) { y = one(x) }"
    assert xhat.op(both).name == "two" and xhat.op(both, "one").name == "one"


def test_others_run_meanwhile():
    """The interpreter's lock is free while kernels run: a counting thread goes on."""
    op = xhat.op("op heavy(x: f64[N]) -> (y) { y[i] = sum(k in 0..20000: sin(x[i] + f64(k))) }", threads=1)
    x = np.ones(2000)
    op(x[:1])
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    op(x)
    during = counted[0] - before
    stop.set()
    thread.join()
    assert during > 10


def test_one_op_from_many_threads():
    op = xhat.op(NORM, threads=1)
    rng = np.random.default_rng(4)
    data = [rng.normal(size=(3 + i % 3, 8)) for i in range(12)]
    g = np.ones(8)
    results = [None] * len(data)

    def run(i):
        for _ in range(20):
            y, kept = op.forward(data[i], g)
            results[i] = y, op.backward(kept, data[i])[0]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(data))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, x in enumerate(data):
        y, kept = op.forward(x, g)
        np.testing.assert_array_equal(results[i][0], y)
        np.testing.assert_array_equal(results[i][1], op.backward(kept, x)[0])


def test_many_calls_in_one():
    op, rng = xhat.op(NORM), np.random.default_rng(5)
    xs, gs = rng.normal(size=(3, 4, 6)), rng.normal(size=(3, 6))
    np.testing.assert_allclose(op.vmap("x")(xs, gs[0]), [op(x, gs[0]) for x in xs], rtol=1e-12)
    np.testing.assert_allclose(op.vmap()(xs, gs), [op(x, g) for x, g in zip(xs, gs)], rtol=1e-12)
    np.testing.assert_allclose(op.vmap("g").vmap("x")(xs, gs), [[op(x, g) for g in gs] for x in xs], rtol=1e-12)
    batched = op.vmap("x")
    y, kept = batched.forward(xs, gs[0])
    grad_x, grad_g = batched.backward(kept, y)
    each = [op.vjp(x, gs[0], op(x, gs[0])) for x in xs]
    np.testing.assert_allclose(grad_x, [e[1] for e in each], rtol=1e-9)
    np.testing.assert_allclose(grad_g, sum(e[2] for e in each), rtol=1e-9)  # one g for all
    assert batched(xs[:0], gs[0]).shape == (0, 4, 6)


def test_whole_derivatives():
    op, rng = xhat.op(NORM), np.random.default_rng(6)
    x, g = rng.normal(size=(3, 4)), rng.normal(size=4)
    y, by_x, by_g = op.jacobian(x, g)
    assert op.jacobian.outputs == ["y", "jac_y_x", "jac_y_g"] and by_x.shape == (3, 4, 3, 4) and by_g.shape == (3, 4, 4)
    for i in range(3):
        for j in range(4):
            unit = np.zeros((3, 4))
            unit[i, j] = 1
            np.testing.assert_allclose(by_x[:, :, i, j], op.jvp(x, g, unit, np.zeros(4))[1], rtol=1e-9, atol=1e-12)
    f = xhat.op("op f(x: f64[N]) -> (l) { l = sum(i: x[i]^4) + x[0] * x[N-1] }")
    l, gradient, h = f.hessian(np.array([1.0, 2, 3]))
    assert l == 101 and gradient.tolist() == [7, 32, 109] and h.tolist() == [[12, 0, 1], [0, 48, 0], [1, 0, 108]]
    with pytest.raises(xhat.Error, match="of one float output, a scalar"):
        op.hessian
    with pytest.raises(xhat.Error, match="vmap of a program with loops"):
        xhat.op(DECAY).vmap()


def test_copies_and_pickles():
    op = xhat.op(NORM, threads=1, wrt=["x"], stash="largest")
    assert copy.deepcopy(op) is op
    rng = np.random.default_rng(7)
    x, g = rng.normal(size=(3, 4)), rng.normal(size=4)
    for one in (op, op.vmap("g"), op.vjp.only(["grad_x"]), xhat.op(DECAY)):
        again = pickle.loads(pickle.dumps(one))
        assert again.text == one.text and again._state() == one._state() and again.inputs == one.inputs
    assert pickle.loads(pickle.dumps(op)).gradients == ["grad_x"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(op))(x, g), op(x, g))


def test_products_are_made_once():
    op = xhat.op("op f(x: f32[N]) -> (y) { y[i] = x[i]^2 }")
    assert op.jvp is op.jvp and op.vjp is op.vjp and op.jacobian is not op.jvp
    _, kept = op.jvp.forward(np.ones(2, np.float32), np.ones(2, np.float32))
    assert op.jvp.backward(kept, np.zeros(2, np.float32), np.ones(2, np.float32))[0].tolist() == [2, 2]
