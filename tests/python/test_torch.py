"""xhat.torch: eager, compiled, checkpointed, transformed; derivatives of first and higher order."""
import pytest

torch = pytest.importorskip("torch")

import xhat
import xhat.torch

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

NORM = """op norm(x: f64[N,D], g: f64[D]) -> (y) {
  m[n] = sum(d: x[n,d]) / f64(D)
  v[n] = sum(d: (x[n,d] - m[n])^2) / f64(D)
  y[n,d] = g[d] * (x[n,d] - m[n]) / sqrt(v[n] + 1e-5)
}"""
# Of many kinds: a stash and none, several outputs, whole numbers among inputs and outputs, scalars, a loop that stays.
OPS = {
    "norm": (NORM, lambda r: (r(4, 6), r(6))),
    "gelu": ("op gelu(x: f64[N]) -> (y) { y[i] = 0.5 * x[i] * (1 + erf(x[i] * 0.7071067811865476)) }", lambda r: (r(5),)),
    "softmax": ("op softmax(x: f64[N,D]) -> (y) { m[n] = max(d: x[n,d]); e[n,d] = exp(x[n,d] - m[n]); y[n,d] = e[n,d] / sum(k: e[n,k]) }",
                lambda r: (r(3, 5),)),
    "two": ("op two(a: f64[N], b: f64[N], s: f64) -> (y, z) { y[i] = s * a[i] * b[i]\n z = sum(i: a[i]^2 * s) }", lambda r: (r(5), r(5), r())),
    "rows": ("op rows(t: f64[V,D], ids: i64[B]) -> (y) { y[b,d] = t[ids[b],d] * t[ids[b],0] }",
             lambda r: (r(4, 3), torch.tensor([3, 1, 3]))),
    "largest": ("op largest(x: f64[N,D]) -> (y, at) { y[n] = max(d: x[n,d]^3); at[n] = argmax(d: x[n,d]) }", lambda r: (r(4, 5),)),
    "conv": ("op conv(x: f64[C,N], w: f64[K,C,3]) -> (y) { y[k, i in 0..N/2] = sum(c, r: x[c,2*i+r-1 else 0] * w[k,c,r]) }",
             lambda r: (r(2, 7), r(3, 2, 3))),
    "decay": ("""prog decay(x: f64[T,N], a: f64) -> (out) {
      var h = zeros f64[N]
      var out = zeros f64[T,N]
      for t in 0..T { h[i] = a * tanh(h[i]) + x[t,i]
        out[t] = h }
    }""", lambda r: (r(4, 3), r())),
}


def case(name, **options):
    text, data = OPS[name]
    torch.manual_seed(1)
    tensors = data(lambda *shape: torch.randn(shape, dtype=torch.float64))
    return xhat.torch.custom_op(xhat.op(text, **options)), [t.requires_grad_() if t.is_floating_point() else t for t in tensors]


def floats(f):
    """f with its float outputs only: others have no gradients."""
    def of(*tensors):
        results = f(*tensors)
        results = (results,) if isinstance(results, torch.Tensor) else results
        return tuple(r for r in results if r.is_floating_point())
    return of


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("stash", ["cost", "largest", "none"])
def test_gradients_by_finite_differences(name, stash):
    f, tensors = case(name, stash=stash)
    assert torch.autograd.gradcheck(floats(f), tensors)


@pytest.mark.parametrize("name", [n for n in OPS if n != "decay"])
def test_second_derivatives(name):
    f, tensors = case(name)
    assert torch.autograd.gradgradcheck(floats(f), tensors)


def test_third_derivatives():
    f = xhat.torch.custom_op(xhat.op("op cube(x: f64[N]) -> (y) { y[i] = x[i]^3 * sin(x[i]) }"))
    x = torch.linspace(-1, 2, 5, dtype=torch.float64, requires_grad=True)
    ours, theirs = f(x), x**3 * x.sin()
    for _ in range(3):
        (ours,), (theirs,) = (torch.autograd.grad(y.sum(), x, create_graph=True) for y in (ours, theirs))
        torch.testing.assert_close(ours, theirs)


def test_loops_have_first_derivatives_only():
    f, (x, a) = case("decay")
    (g,) = torch.autograd.grad(f(x, a).sum(), x, create_graph=True)
    with pytest.raises(xhat.Error, match="decay: .*loops"):
        torch.autograd.grad(g.sum(), x)


@pytest.mark.parametrize("name", OPS)
def test_what_pytorch_checks_of_custom_ops(name):
    f, tensors = case(name)
    torch.library.opcheck(f.inference.overload, [t.detach() for t in tensors])
    torch.library.opcheck(f.forward.overload, tensors)


@pytest.mark.parametrize("name", OPS)
def test_compiled_whole_at_several_sizes(name):
    torch._dynamo.reset()
    f, tensors = case(name)
    def model(*ts):
        return sum(r.sin().sum() for r in floats(f)(*(t * 2 if t.is_floating_point() else t for t in ts)))
    compiled = torch.compile(model, fullgraph=True)
    moving = [t for t in tensors if t.requires_grad]
    for again in range(2):
        wanted, got = model(*tensors), compiled(*tensors)
        torch.testing.assert_close(got, wanted)
        torch.testing.assert_close(torch.autograd.grad(got, moving), torch.autograd.grad(wanted, moving))
    if name in ("gelu", "softmax"):
        for n in (2, 7, 9):
            x = torch.randn(n, *tensors[0].shape[1:], dtype=torch.float64)
            torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_under_checkpointing(reentrant):
    from torch.utils.checkpoint import checkpoint
    f, (x, g) = case("norm")
    wanted = torch.autograd.grad(f(x, g).sin().sum(), x)
    checkpoint(lambda x: f(x, g).sin(), x, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close((x.grad,), wanted)


def test_what_is_kept_goes_through_hooks_for_saved_tensors():
    f, (x, g) = case("norm", drop=["x"])
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t.clone(), lambda t: t):
        y = f(x, g)
    y.sum().backward()
    assert torch.Size([4]) in seen  # a number per row: the stash


@pytest.mark.parametrize("name", ["norm", "two", "rows", "conv", "decay"])
def test_vmap(name):
    f, tensors = case(name)
    tensors = [t.detach() for t in tensors]
    stacked = torch.stack([tensors[0], tensors[0] * 2, tensors[0] - 1], dim=1)
    got = torch.vmap(f, (1, *[None] * (len(tensors) - 1)))(stacked, *tensors[1:])
    for i in range(3):
        wanted = f(stacked[:, i], *tensors[1:])
        torch.testing.assert_close(got[i] if isinstance(got, torch.Tensor) else tuple(r[i] for r in got), wanted)


def test_vmap_is_one_call():
    f, (x, g) = case("norm")
    calls = torch.vmap(f, (0, None))(torch.randn(0, 4, 6, dtype=torch.float64), g.detach())  # one by one, no shape would be known
    assert calls.shape == (0, 4, 6)


def test_transformations_of_torch_func():
    f, (x, g) = case("norm")
    x, g = x.detach(), g.detach()
    def loss(x, f=f):
        return f(x, g).sin().sum()
    def plain(x, g):
        m = x.mean(1, keepdim=True)
        return g * (x - m) / ((x - m).square().mean(1, keepdim=True) + 1e-5).sqrt()
    xs = torch.randn(3, 4, 6, dtype=torch.float64)
    def theirs(x):
        return loss(x, plain)
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(xs), torch.vmap(torch.func.grad(theirs))(xs))
    torch.testing.assert_close(torch.func.jacrev(lambda x: f(x, g))(x), torch.func.jacrev(lambda x: plain(x, g))(x))
    torch.testing.assert_close(torch.func.jacfwd(lambda x: f(x, g))(x), torch.func.jacfwd(lambda x: plain(x, g))(x))
    torch.testing.assert_close(torch.func.hessian(loss)(x), torch.func.hessian(theirs)(x))
    torch.testing.assert_close(torch.func.grad(lambda xs: torch.vmap(loss)(xs).sum())(xs), torch.vmap(torch.func.grad(theirs))(xs))


def test_forward_mode():
    import torch.autograd.forward_ad as forward
    f, (x, g) = case("norm")
    x, g, v = x.detach(), g.detach(), torch.randn(4, 6, dtype=torch.float64)
    with forward.dual_level():
        _, tangent = forward.unpack_dual(f(forward.make_dual(x, v), g))
    torch.testing.assert_close(tangent, torch.func.jvp(lambda x: f(x, g), (x,), (v,))[1])
    torch.testing.assert_close(tangent, (f(x + 1e-6 * v, g) - f(x - 1e-6 * v, g)) / 2e-6, rtol=1e-5, atol=1e-7)


def test_what_has_no_forward_mode_does_not_drop_tangents():
    f, (x, g) = case("norm")
    x, g = x.detach(), g.detach()
    with pytest.raises(xhat.Error, match="no forward mode"):
        torch.func.jvp(lambda x: f.inference.overload(x, g), (x,), (x,))
    torch._dynamo.reset()
    inside = torch.compile(lambda x: torch.func.jvp(lambda x: f(x, g), (x,), (x,))[1], fullgraph=True)
    with pytest.raises(Exception):
        inside(x)
    around = torch.func.jvp(torch.compile(lambda x: f(x, g)), (x,), (x,))[1]
    torch.testing.assert_close(around, torch.func.jvp(lambda x: f(x, g), (x,), (x,))[1])
    at = xhat.torch.custom_op(xhat.op("op at(x: f64[N]) -> (y) { y = argmax(i: x[i]) }"))
    assert torch.func.jvp(lambda x: (x * 2, at(x))[0], (x[0],), (x[0],))[1].equal(2 * x[0])


def test_only_gradients_that_are_wanted_are_computed():
    f, (x, g) = case("norm")
    y = f(x.detach(), g)
    (got,) = torch.autograd.grad(y.sum(), g)
    (_, wanted) = torch.autograd.grad(f(x, g).sum(), (x, g))
    torch.testing.assert_close(got, wanted)
    assert set(f._narrow) >= {2, 3}  # bits: x, g


def test_numbers_names_and_sizes():
    f = xhat.torch.custom_op(xhat.op("op scaled(x: f32[N], s: f32) -> (y) { y[i] = s * x[i] }"))
    x = torch.ones(3)
    assert f(x, 2).tolist() == f(s=2.0, x=x).tolist() == f(x, torch.tensor(2.0)).tolist() == [2, 2, 2]
    spread = xhat.torch.custom_op(xhat.op("op spread(x: f32[N]) -> (y) { y[i in 0..N, j in 0..M] = x[i] * x[i] }"), M=4)
    x = torch.ones(3, requires_grad=True)
    y = spread(x)
    y.sum().backward()
    assert y.shape == (3, 4) and x.grad.tolist() == [8, 8, 8]
    assert torch.compile(spread, fullgraph=True)(x).shape == (3, 4)
    for call, words in [(lambda: f(x), "'s' is missing"), (lambda: f(x, 1, z=1), "no 'z'"), (lambda: f(x, x=x, s=1), "given twice"),
                        (lambda: f(x, [1]), "s is a list; give a tensor or a number"),
                        (lambda: f(x.detach().double(), 1), r"its elements are f64, but f32 is declared; convert it, as by x.to\(torch.float32\)"),
                        (lambda: xhat.torch.custom_op("op"), "wants an xhat.Op")]:
        with pytest.raises(xhat.Error, match=words):
            call()


def test_half_types_and_strides():
    f = xhat.torch.custom_op(xhat.op("op twice(x: bf16[N,M]) -> (y) { y[j,i] = x[i,j] + x[i,j] }"))
    x = torch.randn(4, 6, dtype=torch.bfloat16)[::2, 1::2].requires_grad_()
    y = f(x)
    torch.testing.assert_close(y, (x + x).T)
    y.sum().backward()
    assert x.grad.dtype == torch.bfloat16 and (x.grad == 2).all()


def test_two_ops_of_one_name():
    one, two = (f"op same(x: f32[N]) -> (y) {{ y[i] = x[i] + {k} }}" for k in (1, 2))
    a, b = (xhat.torch.custom_op(xhat.op(text)) for text in (one, two))
    assert a(torch.zeros(1)).item() == 1 and b(torch.zeros(1)).item() == 2
    assert a.name != b.name
    assert xhat.torch.custom_op(xhat.op(one)) is a


def test_a_model_with_an_op_is_copied_and_pickled():
    import copy
    import pickle
    model = torch.nn.ReLU()
    model.norm = case("norm")[0]
    assert copy.deepcopy(model).norm is model.norm and pickle.loads(pickle.dumps(model)).norm is model.norm


def test_an_op_without_gradients():
    f = xhat.torch.custom_op(xhat.op("op at(x: f32[N]) -> (y) { y = argmax(i: x[i]) }"))
    y = f(torch.tensor([1.0, 3.0, 2.0], requires_grad=True))
    assert y.item() == 1 and not y.requires_grad


def test_calls_of_the_op_itself_take_tensors_but_no_gradients():
    op = xhat.op("op twice(x: f32[N]) -> (y) { y[i] = 2 * x[i] }")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(xhat.Error, match="requires a gradient.*custom_op"):
        op(x)
    with torch.no_grad():
        assert op(x).tolist() == [2, 2, 2]
    out = torch.empty(3)
    assert op(x.detach(), out=out) is out and isinstance(op(x.detach()), torch.Tensor)
