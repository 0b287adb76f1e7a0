"""xhat.jax: under jit, grad, jvp, vmap, and what these make of each other, beside the same formula in JAX."""
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp

import xhat
import xhat.jax


@pytest.fixture(autouse=True, scope="module")
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def norm(x, g):
    d = x - x.mean(1, keepdims=True)
    return g * d / jnp.sqrt((d**2).mean(1, keepdims=True) + 1e-5)


def conv(x, w):
    return jax.lax.conv_general_dilated(x[None], w, (2,), [(1, 1)], dimension_numbers=("NCW", "OIW", "NCW"))[0]


# Of many kinds: a stash and none, several outputs, whole numbers among inputs and outputs, scalars. Beside each what JAX computes.
OPS = {
    "norm": ("""op norm(x: f64[N,D], g: f64[D]) -> (y) {
      m[n] = sum(d: x[n,d]) / f64(D)
      v[n] = sum(d: (x[n,d] - m[n])^2) / f64(D)
      y[n,d] = g[d] * (x[n,d] - m[n]) / sqrt(v[n] + 1e-5)
    }""", norm, lambda r: (r(4, 6), r(6))),
    "softmax": ("op softmax(x: f64[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
                lambda x: jax.nn.softmax(x, axis=1), lambda r: (r(3, 5),)),
    "two": ("op two(a: f64[N], b: f64[N], s: f64) -> (y, z) { y[i] = s * a[i] * b[i]\n z = sum(i: a[i]^2 * s) }",
            lambda a, b, s: (s * a * b, s * (a * a).sum()), lambda r: (r(5), r(5), r())),
    "rows": ("op rows(t: f64[V,D], ids: i64[B]) -> (y) { y[b,d] = t[ids[b],d] * t[ids[b],0] }",
             lambda t, ids: t[ids] * t[ids][:, :1], lambda r: (r(4, 3), jnp.array([3, 1, 3]))),
    "largest": ("op largest(x: f64[N,D]) -> (at, y) { y[n] = max(d: x[n,d]^3); at[n] = argmax(d: x[n,d]) }",
                lambda x: (x.argmax(1), (x**3).max(1)), lambda r: (r(4, 5),)),
    "conv": ("op conv(x: f64[C,N], w: f64[K,C,3]) -> (y) { y[k, i in 0..(N+1)/2] = sum(c, r: x[c,2*i+r-1 else 0] * w[k,c,r]) }",
             conv, lambda r: (r(2, 7), r(3, 2, 3))),
}


def case(name, **options):
    text, wanted, data = OPS[name]
    rng = np.random.default_rng(1)
    arrays = data(lambda *shape: jnp.asarray(rng.normal(size=shape)))
    moving = tuple(i for i, a in enumerate(arrays) if jnp.issubdtype(a.dtype, jnp.floating))
    return xhat.jax.op(xhat.op(text, **options)), wanted, arrays, moving


def loss(f):
    def of(*arrays):
        results = f(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        return sum(jnp.sin(r).sum() for r in results if jnp.issubdtype(r.dtype, jnp.floating))
    return of


def same(got, wanted, rtol=1e-7):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9), got, wanted)


def test_xla_calls_the_kernels_itself():
    assert xhat.jax.backend == "ffi"


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("stash", ["cost", "largest", "none"])
def test_values_and_gradients(name, stash):
    f, wanted, arrays, moving = case(name, stash=stash)
    same(f(*arrays), wanted(*arrays))
    same(jax.jit(f)(*arrays), wanted(*arrays))
    same(jax.grad(loss(f), moving)(*arrays), jax.grad(loss(wanted), moving)(*arrays))
    same(jax.jit(jax.grad(loss(f), moving))(*arrays), jax.grad(loss(wanted), moving)(*arrays))
    same(jax.grad(loss(f), moving[:1])(*arrays), jax.grad(loss(wanted), moving[:1])(*arrays))


@pytest.mark.parametrize("name", OPS)
def test_forward_mode(name):
    f, wanted, arrays, moving = case(name)
    arrays, rest = [arrays[i] for i in moving], [a for i, a in enumerate(arrays) if i not in moving]
    tangents = [a * 2 + 1 for a in arrays]
    same(jax.jvp(lambda *a: loss(f)(*a, *rest), arrays, tangents), jax.jvp(lambda *a: loss(wanted)(*a, *rest), arrays, tangents))


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("outer", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("inner", [jax.jacfwd, jax.jacrev])
def test_second_derivatives(name, outer, inner):
    f, wanted, arrays, moving = case(name)
    same(outer(inner(loss(f), moving), moving)(*arrays), jax.hessian(loss(wanted), moving)(*arrays), rtol=1e-6)


def test_third_derivatives():
    f = xhat.jax.op(xhat.op("op cube(x: f64[N]) -> (y) { y[i] = x[i]^3 * sin(x[i]) }"))
    x = jnp.linspace(-1, 2, 4)
    same(jax.jacfwd(jax.jacrev(jax.jacrev(loss(f))))(x), jax.jacfwd(jax.jacrev(jax.jacrev(loss(lambda x: x**3 * jnp.sin(x)))))(x))


@pytest.mark.parametrize("name", OPS)
def test_vmap(name):
    f, wanted, arrays, moving = case(name)
    stacked = jnp.stack([arrays[0], arrays[0] * 2, arrays[0] - 1], axis=1)
    axes = (1, *[None] * (len(arrays) - 1))
    same(jax.vmap(f, axes)(stacked, *arrays[1:]), jax.vmap(wanted, axes)(stacked, *arrays[1:]))
    same(jax.jit(jax.vmap(jax.grad(loss(f)), axes))(stacked, *arrays[1:]), jax.vmap(jax.grad(loss(wanted)), axes)(stacked, *arrays[1:]))
    through = [jax.grad(lambda s, f=f: jax.vmap(loss(f), axes)(s, *arrays[1:]).sum())(stacked) for f in (f, wanted)]
    same(*through)


def test_vmap_is_one_call():
    for name in OPS:
        f, _, arrays, moving = case(name)
        axes = (0, *[None] * (len(arrays) - 1))
        for g in (loss(f), jax.grad(loss(f)), jax.grad(lambda *a: jax.vmap(loss(f), axes)(a[0][None], *a[1:]).sum())):
            assert "scan" not in str(jax.make_jaxpr(jax.vmap(g, axes))(arrays[0][None], *arrays[1:])), name


def test_under_checkpointing_and_scans():
    f, wanted, (x, g), _ = case("norm")
    same(jax.grad(jax.checkpoint(loss(f)))(x, g), jax.grad(loss(wanted))(x, g))
    def deep(f):
        return lambda x: jax.lax.scan(lambda c, _: (f(c, g) + x, None), x, None, length=4)[0].sum()
    same(jax.grad(deep(f))(x), jax.grad(deep(wanted))(x))


def test_programs_with_loops_have_first_derivatives():
    f = xhat.jax.op(xhat.op("""prog decay(x: f64[T,N], a: f64) -> (out) {
      var h = zeros f64[N]
      var out = zeros f64[T,N]
      for t in 0..T { h[i] = a * tanh(h[i]) + x[t,i]
        out[t] = h }
    }"""))
    def wanted(x, a):
        return jax.lax.scan(lambda h, row: ((n := a * jnp.tanh(h) + row), n), jnp.zeros(x.shape[1]), x)[1]
    x = jnp.asarray(np.random.default_rng(2).normal(size=(5, 3)))
    same(f(x, 0.7), wanted(x, 0.7))
    same(jax.jit(jax.grad(loss(f), (0, 1)))(x, jnp.float64(0.7)), jax.grad(loss(wanted), (0, 1))(x, jnp.float64(0.7)))
    same(jax.jacfwd(loss(f))(x, 0.7), jax.jacfwd(loss(wanted))(x, 0.7))
    with pytest.raises(xhat.Error, match="loops"):
        jax.hessian(loss(f))(x, 0.7)


def test_by_way_of_python(monkeypatch):
    monkeypatch.setattr(xhat.jax, "backend", "callback")
    calls, run = [], xhat.jax._Call._in_python
    monkeypatch.setattr(xhat.jax._Call, "_in_python", lambda self, *arrays: calls.append(self.key) or run(self, *arrays))
    f = xhat.jax.op(xhat.op(OPS["norm"][0], threads=1))
    _, wanted, (x, g), _ = case("norm")
    same(jax.jit(f)(x, g), norm(x, g))
    same(jax.jit(jax.grad(loss(f), (0, 1)))(x, g), jax.grad(loss(wanted), (0, 1))(x, g))
    assert len(calls) == 3  # inference; forward and backward


def test_numbers_names_sizes_and_mistakes():
    f = xhat.jax.op(xhat.op("op scaled(x: f32[N], s: f32) -> (y) { y[i] = s * x[i] }"))
    x = jnp.ones(3, jnp.float32)
    assert f(x, 2).tolist() == f(s=2.0, x=x).tolist() == [2, 2, 2] and f(x, 2).dtype == jnp.float32
    assert jax.grad(lambda s: f(x, s).sum())(jnp.float32(1)) == 3
    spread = xhat.jax.op(xhat.op("op spread(x: f32[N]) -> (y) { y[i in 0..N, j in 0..M] = x[i] * x[i] }"), M=4)
    assert spread(x).shape == (3, 4) and jax.grad(lambda x: spread(x).sum())(x).tolist() == [8, 8, 8]
    for call, words in [(lambda: f(x), "'s' is missing"), (lambda: f(x, 1, z=1), "no 'z'"), (lambda: f(x, x=x, s=1), "given twice"),
                        (lambda: f(x.astype(jnp.float64), 1), "x is declared float32, but the array is float64"),
                        (lambda: f(x[None], 1), "x has 2 dimension"), (lambda: xhat.jax.op("op"), "wants an xhat.Op")]:
        with pytest.raises(xhat.Error, match=words):
            call()


def test_half_types():
    f = xhat.jax.op(xhat.op("op twice(x: bf16[N]) -> (y) { y[i] = x[i] + x[i] }"))
    x = jnp.array([1, 2, 3], jnp.bfloat16)
    assert f(x).dtype == jnp.bfloat16 and f(x).tolist() == [2, 4, 6]
    assert jax.grad(lambda x: f(x).sum())(x).tolist() == [2, 2, 2]


def test_an_index_in_the_data_is_checked():
    f = xhat.jax.op(xhat.op(OPS["rows"][0]))
    with pytest.raises(Exception, match="rows"):
        f(jnp.ones((4, 3)), jnp.array([9])).block_until_ready()


def test_arrays_of_jax_go_to_the_op_itself():
    op = xhat.op("op twice(x: f32[N]) -> (y) { y[i] = 2 * x[i] }")
    y = op(jnp.ones(3, jnp.float32) * 3)
    assert isinstance(y, jax.Array) and y.tolist() == [6, 6, 6]
    heavy = jax.jit(lambda x: jnp.linalg.matrix_power(x, 50).sum(0))(jnp.eye(300, dtype=jnp.float32))  # not there yet
    assert op(heavy).tolist() == [2] * 300
