"""Calls on NumPy's arrays and on everything else that shows its memory."""
import pathlib

import numpy as np
import pytest

import xhat

TANH = "op scaled_tanh(x: f32[N], s: f32) -> (y) { y[i] = s * tanh(x[i]) }"
TWO = "op two(x: f32[N,M]) -> (r, c) { r[i] = sum(j: x[i,j])\n c[j] = sum(i: x[i,j]) }"


def test_arrays_by_position_and_by_name():
    op = xhat.op(TANH)
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    for y in (op(x, 3), op(x, s=3), op(s=np.float32(3), x=x), op(x, np.array(3, np.float32))):
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, 3 * np.tanh(x), rtol=1e-6)


def test_several_results_are_a_tuple_and_one_is_an_array():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    r, c = xhat.op(TWO)(x)
    np.testing.assert_array_equal(r, x.sum(1))
    np.testing.assert_array_equal(c, x.sum(0))


def test_results_go_to_memory_of_the_caller():
    x = np.ones((2, 3), np.float32)
    r, c = np.zeros(2, np.float32), np.zeros(3, np.float32)
    given = xhat.op(TWO)(x, out=(r, c))
    assert given[0] is r and given[1] is c and (r == 3).all() and (c == 2).all()
    strided = np.zeros((5, 2), np.float32)
    xhat.op(TANH)(np.ones(5, np.float32), 1, out=strided[:, 0])
    assert (strided[:, 0] > 0.7).all() and (strided[:, 1] == 0).all()


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "int64", "int32", "uint32", "uint8", "bool"])
def test_every_dtype(name):
    declared = {"float64": "f64", "float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "uint32": "u32", "uint8": "u8", "bool": "bool"}
    op = xhat.op(f"op same(x: {declared[name]}[N]) -> (y) {{ y[i in 0..N] = x[N-1-i] }}")
    x = np.array([0, 1, 1, 0, 1], name)
    assert op(x).dtype == x.dtype
    np.testing.assert_array_equal(op(x), x[::-1])


def test_doubles_are_rounded_to_16_bits_once():
    """A trace of what lies beyond f32's digits decides where f16 is half way between two numbers."""
    tie = 1 + 2.0**-11
    x = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, 65519.999999, 1e300, -1e-300, 2.0**-25 + 2.0**-60, np.inf, np.nan, 0.1, 3.0])
    for shape in ((12,), (3, 4)):
        y = xhat.op(f"op f(x: f64{list(shape)}) -> (y) {{ y[{'i,j'[:2 * len(shape) - 1]}] = f16(x[{'i,j'[:2 * len(shape) - 1]}]) }}")(x.reshape(shape))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, x.astype(np.float16).reshape(shape))
    k = np.array([2**32 + 2**24, 2**32 + 2**24 + 1, -(2**32) - 2**24 - 1])
    y = np.asarray(xhat.op("op f(k: i64[N]) -> (y) { y[i] = bf16(k[i]) }")(k)).view(np.uint16)
    assert y.tolist() == [0x4F80, 0x4F81, 0xCF81]


def test_bf16_is_its_bits_where_numpy_has_no_type_for_it():
    op = xhat.op("op twice(x: bf16[N]) -> (y) { y[i] = x[i] + x[i] }")
    y = op(np.array([0x3F80, 0xC040], np.uint16))  # 1, -3
    assert y.view(np.uint16).tolist() == [0x4000, 0xC0C0]
    with pytest.raises(xhat.Error, match="'H' of 2 bytes, but f32 is declared"):
        xhat.op(TANH)(np.zeros(3, np.uint16), 1)


def test_memory_is_not_copied_whatever_its_strides():
    op = xhat.op("op transposed(x: f32[N,M]) -> (y) { y[j,i] = x[i,j] }")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(op(x), x.T)
    np.testing.assert_array_equal(op(x.T), x)
    np.testing.assert_array_equal(op(x[::2, 1::3]), x[::2, 1::3].T)
    np.testing.assert_array_equal(op(np.broadcast_to(x[0], (3, 6))), np.broadcast_to(x[0], (3, 6)).T)
    with pytest.raises(xhat.Error, match="negative stride"):
        op(x[::-1])


def test_whatever_has_the_buffer_protocol_or_dlpack():
    op = xhat.op("op sum_up(x: u8[N]) -> (y) { y = sum(i: i64(x[i])) }")
    assert op(b"\1\2\3") == op(bytearray([1, 2, 3])) == op(memoryview(b"\1\2\3")) == 6

    class Dlpack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert op(Dlpack(np.array([1, 2, 3], np.uint8))) == 6


def test_empty_arrays_and_scalars():
    assert xhat.op(TANH)(np.zeros(0, np.float32), 1).shape == (0,)
    y = xhat.op("op total(x: f64[N]) -> (y) { y = sum(i: x[i]) }")(np.zeros(0))
    assert y.shape == () and y == 0


def test_whole_numbers_are_checked():
    op = xhat.op("op shifted(x: i32[N], k: i32) -> (y) { y[i] = x[i] + k }")
    x = np.zeros(2, np.int32)
    assert op(x, -5).tolist() == [-5, -5] and op(x, True).tolist() == [1, 1]
    with pytest.raises(xhat.Error, match="2147483648 is outside of i32"):
        op(x, 2**31)
    with pytest.raises(xhat.Error, match="k: a float is no whole number, but i32 is declared"):
        op(x, 0.5)


def test_dims_by_keyword():
    op = xhat.op("op spread(x: f32[N]) -> (y) { y[i in 0..N, j in 0..M] = x[i] }")
    x = np.ones(2, np.float32)
    assert op(x, M=3).shape == (2, 3) and op(x, M=5).shape == (2, 5)
    with pytest.raises(xhat.Error, match="the value of dim M is not known"):
        op(x)
    with pytest.raises(xhat.Error, match="says N = 2, but|N = 7|given"):
        op(x, M=3, N=7)


def test_the_shapes_of_results_follow_those_of_arguments():
    op = xhat.op("op halves(x: f32[N]) -> (y) { y[i in 0..N/2] = x[2*i] }")
    for n in [*range(40), *range(40)]:
        np.testing.assert_array_equal(op(np.arange(n, dtype=np.float32)), np.arange(0, n // 2 * 2, 2))


def test_a_loss_has_the_cotangent_one():
    op = xhat.op("op f(x: f32[N]) -> (loss) { loss = sum(i: x[i]^2) }")
    x = np.arange(4, dtype=np.float32)
    loss, kept = op.forward(x)
    np.testing.assert_array_equal(op.backward(kept), 2 * x)
    memory = np.empty_like(x)
    op.backward(kept, out=memory)
    np.testing.assert_array_equal(memory, 2 * x)
    np.testing.assert_array_equal(op.backward(kept, dloss=np.float32(3)), 6 * x)
    other = xhat.op(TANH)
    _, kept = other.forward(x, 1)
    with pytest.raises(xhat.Error, match="'dy' is missing"):
        other.backward(kept)


def test_the_version_is_that_of_the_build():
    lists = (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text()
    assert f"project(xhat VERSION {xhat.__version__} " in lists


def test_mistakes_are_named():
    op = xhat.op(TANH)
    x = np.ones(4, np.float32)
    for call, words in [
        (lambda: op(x), "'s' is missing"),
        (lambda: op(x, 1, 2), "takes 2 arrays .x, s., but 3 are given"),
        (lambda: op(x, 1, s=2), "s is given twice"),
        (lambda: op(x, 1, z=2), "no 'z'; arrays: x, s; dims: N"),
        (lambda: op(x.astype(np.float64), 1), r"x: its elements are f64, but f32 is declared; convert it, as by x.astype\(\"float32\"\)"),
        (lambda: op(np.ones(4, np.int64), 1), r"x: its elements are i64, but f32 is declared"),
        (lambda: op(x, np.array(2.0)), r"s: its elements are f64, but f32 is declared"),
        (lambda: op(x, 1, out=np.zeros(4)), r"y: its elements are f64, but f32 is declared"),
        (lambda: op(x[::-1], 1), "x: it has a negative stride in dimension 0; numpy.ascontiguousarray copies it"),
        (lambda: op(np.ma.masked_array(x, x > 0), 1), r"x: it has a mask, which would not be looked at; fill it, as by x.filled\(0\)"),
        (lambda: op(x, np.ones(1, np.float32)), "s has 1 dimension"),
        (lambda: op(x, None), "s: a NoneType is no array"),
        (lambda: op(x.astype(">f4"), 1), r"format '>f' of 4 bytes, but f32 is declared; convert it"),
        (lambda: xhat.op("op fill(x: f32[N]) -> (y) { y[i in 0..M] = x[0] }")(x), "the value of dim M is not known; .*M=VALUE"),
        (lambda: xhat.op("examples/batch_norm.xh"), "examples/batch_norm.xh: xhat.op takes the text of an op; xhat.load reads a file"),
        (lambda: xhat.op(pathlib.Path("f.xh")), "f.xh: xhat.op takes the text of an op; xhat.load reads a file"),
        (lambda: op(x[None], 1), "x has 2 dimension"),
        (lambda: op([1.0], 1), "a list is no array"),
        (lambda: op(x, 1, out=np.zeros(3, np.float32)), r"y must have shape \[4\]"),
        (lambda: op(x, 1, out=b"1234"), "y: it is read only|format"),
        (lambda: op(x, 1, out=(x, x)), "out has 2 arrays, but there are 1 results"),
        (lambda: xhat.op(TANH, name="other"), "there is no op 'other'; there are scaled_tanh"),
        (lambda: xhat.op(TANH, stsh="cost"), "no option 'stsh'; there are stash"),
        (lambda: xhat.op(TANH, stash="all"), "cost, largest, none or budget=BYTES, not 'all'"),
        (lambda: xhat.op(TANH, threads="many"), "option threads cannot be 'many'"),
        (lambda: xhat.load("/no/such.xh"), "/no/such.xh: it cannot be read"),
    ]:
        with pytest.raises(xhat.Error, match=words):
            call()


def test_a_mistake_in_the_text_has_its_place_and_a_caret(tmp_path):
    text = "op f(x: f32[N]) -> (y) {\n  y[i] = x[i+1]\n}\n"
    with pytest.raises(xhat.Error) as e:
        xhat.op(text)
    assert str(e.value).splitlines()[0].startswith("<xhat.op>:2:5: error: axis i has no range")
    assert str(e.value).splitlines()[2] == "    ^"
    path = tmp_path / "f.xh"
    path.write_text(text)
    with pytest.raises(xhat.Error, match="f.xh:2:5: error"):
        xhat.load(path)
    assert issubclass(xhat.Error, ValueError)


def test_an_index_in_the_data_is_checked():
    op = xhat.op("op rows(t: f32[V,D], ids: i32[B]) -> (y) { y[b,d] = t[ids[b],d] }")
    t = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(op(t, np.array([2, 0], np.int32)), t[[2, 0]])
    with pytest.raises(xhat.Error, match="rows.*3"):
        op(t, np.array([0, 3], np.int32))
