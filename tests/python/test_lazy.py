"""Lazy arrays from Python: beside NumPy, which computes eagerly; errors; memory that is shared."""
import gc
import weakref

import numpy as np
import pytest

import xhat
from xhat import lazy


def close(array, expected):
    values = array.numpy()
    assert values.shape == expected.shape
    np.testing.assert_allclose(values.astype(float), expected.astype(float), rtol=2e-4, atol=2e-4)


def test_a_step_of_training_in_numpys_memory():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = np.ones((3, 2), np.float32)
    w = lazy.array(weights)
    loss = lazy.mean(lazy.square(x @ w - 1))
    g = lazy.grad(loss, w)
    assert not loss.is_realized and repr(loss).startswith("f32[] lazy: ")
    w -= 0.1 * g
    lazy.realize(loss, w)
    expected = x.T @ (x @ np.ones((3, 2)) - 1) / 2
    assert loss.item() == 62.5
    np.testing.assert_allclose(weights, 1 - 0.1 * expected, rtol=1e-5)


def test_parts_are_views_that_can_be_written():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    a, row = lazy.array(x.copy()), None
    for subscripts in [(1,), (slice(None, None, -1),), (slice(2, 0, -2), slice(None, None, 3)), (Ellipsis, -1), (None, 1, slice(1, 3)), (slice(5, 9),),
                       (slice(0), slice(-2, None))]:
        close(a[subscripts], x[subscripts])
    close(a[[2, 0]], x[[2, 0]])
    close(a[:, np.array([1, 1])], x[:, [1, 1]])
    row, before = a[1], a + 0
    a[1, ::-1] = [1, 2, 3, 4]
    a[0] += 10
    a.T[3] *= 2
    close(row, np.array([4, 3, 2, 2]))
    close(a, np.array([[10, 11, 12, 26], [4, 3, 2, 2], [8, 9, 10, 22]]))
    close(before, x)
    assert [r.shape for r in a] == [(4,)] * 3 and len(a) == 3


def test_numbers_and_numpys_arrays_stand_on_both_sides():
    x = np.array([1, 2, 4], np.float32)
    a = lazy.array(x)
    close(2 / a - x, 2 / x - x)
    close(x * a ** 2, x ** 3)
    close(np.float32(3) - a, 3 - x)
    assert (a * 0.5).dtype == "f32" and (lazy.array([1, 2]) * 0.5).dtype == "f32" and (np.ones(3) + a).dtype == "f64"
    whole = lazy.array([7, -7])
    close(whole // 2, np.array([3, -4]))
    assert lazy.full((2,), 2**53 + 1, "i64").numpy().tolist() == [2**53 + 1] * 2
    assert (a == None) is False and (a != "x") is True  # noqa: E711
    assert bool(a.sum() > 6) and f"{a.mean():.2f}" == "2.33" and int(lazy.array(3)) == 3
    np.testing.assert_array_equal(np.from_dlpack(a), x)
    out = np.empty(3, np.float32)
    assert (a + 1).to(out) is out and out.tolist() == [2, 3, 5]


def test_ops_and_their_gradients():
    op = xhat.op("op f(x: f32[N,M], s: f32) -> (y, z) {\n y[i,j] = x[i,j] * s\n z = sum(i,j: y[i,j])\n}")
    x = lazy.array(np.ones((2, 3), np.float32))
    y, z = lazy.apply(op, x, 2)
    assert y.shape == (2, 3) and z.item() == 12
    gx, gg = lazy.grad(z, x), lazy.grad(lazy.grad(lazy.sum(x * x * x), x).sum(), x)
    lazy.realize([gx, gg])
    close(gx, np.full((2, 3), 2))
    close(gg, np.full((2, 3), 6))


def test_memory_of_numpy_is_let_go():
    x = np.ones(5, np.float32)
    gone = weakref.ref(x)
    a = lazy.array(x)
    del x
    gc.collect()
    assert gone() is not None and a.sum().item() == 5
    del a
    lazy.counts()
    gc.collect()
    lazy.array(1.0)  # what nobody needs is let go at the next call
    assert gone() is None


def line_of(code):
    return code.__code__.co_firstlineno


@pytest.mark.parametrize("wrong, says", [
    (lambda a: a @ a, "matmul: shapes [2,3] and [2,3] do not fit: 3 columns and 2 rows"),
    (lambda a: a[2], "slice: position 2 of dimension 0, whose extent is 2 in [2,3]"),
    (lambda a: a.reshape(7), "reshape: [2,3] has 6 elements, and [7] has 7"),
    (lambda a: a.sum(axis="a"), "an argument has the wrong type; sizes, axes and positions are whole numbers, or lists of them"),
    (lambda a: a.assign(np.ones((2, 3))), "assign: f64 cannot be assigned to f32; cast it"),
    (lambda a: lazy.array(np.ones(3, np.int16)), "its elements have the format 'h' of 2 bytes, which is no type of the language"),
    (lambda a: lazy.array(None), "None is no array"),
    (lambda a: lazy.array([1], "f99"), "f99 is no type; there are f64, f32, f16, bf16, i64, i32, u32, u8 and bool"),
    (lambda a: lazy.array([1]) / 2, "/ of i64 and i64: write a // b, which floors, or cast one of them"),
    (lambda a: lazy.array([3]) ** lazy.array([2]), "pow: an integer power needs a constant exponent that is not negative"),
    (lambda a: lazy.array([3]) ** -1, "pow: an integer power needs a constant exponent that is not negative"),
    (lambda a: lazy.zeros((-1, 2)), "full: an extent of -1 in shape [-1,2]; extents are 0 or more"),
    (lambda a: lazy.random(1, (-1,)), "random: an extent of -1 in shape [-1]; extents are 0 or more"),
    (lambda a: lazy.arange(0, 1, 0), "arange: from 0 to 1 by 0; all are finite, and the step is not 0"),
    (lambda a: lazy.grad(a, a), "grad: a derivative is of one float number, and this is f32[2,3]; sum() makes one of many"),
    (lambda a: lazy.pool(a, 2, "avg"), "pool: kind is max, min, sum or mean, not 'avg'"),
    (lambda a: bool(a), "item: shape [2,3] has more than one element"),
])
def test_mistakes_say_what_and_on_which_line(wrong, says):
    with pytest.raises(xhat.Error) as e:
        wrong(lazy.array(np.ones((2, 3), np.float32)))
    assert says in str(e.value)
    if not says.startswith(("None", "item")):
        assert str(e.value).startswith(f"test_lazy.py:{line_of(wrong)}: ")


class RandomProgram:
    """Pairs of a lazy array and NumPy's of the same value, made by random steps, assignments and realizations among them."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.pairs = [self.new() for _ in range(4)]

    def pick(self, n):
        return int(self.random.integers(n))

    def new(self):
        shape = tuple(self.random.integers(0 if self.pick(12) == 0 else 1, 4, size=self.pick(4)).tolist())
        x = self.random.standard_normal(shape)
        x = np.asarray([x, x.astype(np.float32), np.round(4 * x).astype(np.int64), np.round(4 * x).astype(np.int32), x > 0, x.astype(np.float32)]
                       [self.pick(6)])
        held = x.copy()
        if x.ndim and self.pick(2):  # memory with gaps
            held = np.zeros(tuple(2 * n for n in shape), x.dtype)[tuple(slice(None, None, 2) for _ in shape)]
            held[...] = x
        return lazy.array(held), x

    def any(self):
        return self.pairs[self.pick(len(self.pairs))]

    def floats(self):
        a, x = self.any()
        return (a, x) if x.dtype.kind == "f" else (lazy.cast(a, "f32"), x.astype(np.float32))

    def slices(self, shape):
        def bound(n):
            return None if self.pick(3) == 0 else self.pick(2 * n + 3) - n - 1
        return tuple(slice(bound(n), bound(n), [None, 1, 2, -1, -2][self.pick(5)]) for n in shape[: 1 + self.pick(len(shape))])

    def of_elements(self):
        a, x = self.floats()
        b, y = self.floats()
        try:
            np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            b, y = a, x
        return [lambda: (a + b, x + y), lambda: (a * b - b, x * y - y), lambda: (lazy.maximum(a, b), np.maximum(x, y)),
                lambda: (lazy.where(a > b, a, -b), np.where(x > y, x, -y)), lambda: (lazy.tanh(a) * 0.5 + 1, np.tanh(x) * x.dtype.type(0.5) + x.dtype.type(1)),
                lambda: (lazy.grad(lazy.sum(lazy.sin(a) * a), a), np.cos(x) * x + np.sin(x))][self.pick(6)]()

    def of_dimensions(self):
        a, x = self.any()
        if x.ndim == 0:
            return a[None], x[None]
        d, keep = self.pick(x.ndim), bool(self.pick(2))
        d -= x.ndim if self.pick(2) else 0
        order = [int(i) for i in self.random.permutation(x.ndim)]
        made = [lambda: (lazy.permute(a, order), x.transpose(order)), lambda: (lazy.flip(a, d), np.flip(x, d)), lambda: (lazy.unsqueeze(a, d), np.expand_dims(x, d)),
                lambda: (lazy.concat([a, a], d), np.concatenate([x, x], d)), lambda: (lazy.pad(a, [(1, 2)] * x.ndim), np.pad(x, [(1, 2)] * x.ndim)),
                lambda: (a.contiguous(), x), lambda: (lazy.reshape(a, x.size), x.reshape(-1))]
        if x.dtype.kind == "f":
            made.append(lambda: (lazy.sum(a, d, keep), x.sum(axis=d, keepdims=keep)))
        else:
            made.append(lambda: (lazy.sum(a), np.asarray(x.sum(dtype=np.int64))))
        if x.size and x.dtype != bool:
            made += [lambda: (lazy.max(a, d, keep), x.max(axis=d, keepdims=keep)), lambda: (lazy.argmax(a, d), np.asarray(x.argmax(d))),
                     lambda: (a[-1], x[-1]), lambda: (lazy.take(a, [0, x.shape[0] - 1]), x[[0, -1]])]
        slices = self.slices(x.shape)
        made += [lambda: (a[slices], x[slices])] * 3
        return made[self.pick(len(made))]()

    def assign(self):
        i = self.pick(len(self.pairs))
        a, x = self.pairs[i]
        if x.dtype.kind != "f" or x.ndim == 0:
            return
        x, slices = x.copy(), self.slices(x.shape)
        if self.pick(2):
            a[slices] *= 2
            x[slices] *= 2
        elif x.shape[0]:
            a[-1] = a[0] + 0.5
            x[-1] = x[0] + x.dtype.type(0.5)
        self.pairs[i] = a, x

    def run(self, steps):
        for _ in range(steps):
            kind = self.pick(10)
            if kind == 0:
                self.assign()
            elif kind == 1:
                lazy.realize([a for a, _ in self.pairs[: 1 + self.pick(len(self.pairs))]])
            else:
                a, x = self.of_elements() if kind < 5 else self.of_dimensions()
                if x.size > 300:
                    continue
                pair = (a | False if x.dtype == bool else a + 0), x.copy()  # no view: NumPy's is none
                if len(self.pairs) < 7:
                    self.pairs.append(pair)
                else:
                    self.pairs[self.pick(7)] = pair
        for a, x in self.pairs:
            close(a, x)


def test_random_programs_give_what_numpy_gives():
    for seed in range(25):
        try:
            RandomProgram(seed).run(14)
        except Exception as e:
            raise AssertionError(f"seed {seed}") from e
