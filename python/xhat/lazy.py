"""Lazy arrays: nothing runs until a value is asked for, and then all that is needed at once, fused, with gradients (docs/lazy.md).

    from xhat import lazy

    w = lazy.array(weights)                       # names NumPy's memory, no copy
    loss = lazy.mean(lazy.square(x @ w - t))      # nothing runs; x and t may be NumPy's arrays as well
    g = lazy.grad(loss, w)                        # lazy too
    w -= 0.1 * g
    lazy.realize(loss, w)                         # one program; weights holds the new values
    print(loss.item())

Shapes broadcast by trailing dimensions. A number takes the type of the array beside it. `x[1:3, ::-1, None, -1]` is a view: x[...] = e and x[...] += e write
to that part, and copies of x and views of it see that. Whatever was built before keeps the old value.
"""
import builtins as _builtins

import numpy as _numpy

from . import Page, _xhat
from ._xhat import lazy as _lazy

Array = _lazy.Array


_names = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "uint32": "u32", "uint8": "u8",
          "bool": "bool"}


def _type(dtype):
    """The language's name of a type, which a name, a type of xhat.dsl or a dtype of NumPy says."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if name is None:
        try:
            name = _numpy.dtype(dtype).name
        except TypeError:
            name = repr(dtype)
    return _names.get(name, name)


def _numbers(value):
    return [int(n) for n in value] if hasattr(value, "__iter__") else [int(value)]


# --- Arrays to begin with ---

def array(values, dtype=None):
    """NumPy's arrays, tensors and whatever shows its memory: that memory, without a copy. Lists and numbers: memory of its own."""
    if isinstance(values, Array):
        return values if dtype is None else cast(values, dtype)
    if values is None:
        raise _xhat.Error("None is no array")
    if isinstance(values, (list, tuple, bool, int, float)):
        values = _numpy.array(values)
    if dtype is None:
        return _lazy.array(values, "")
    made = _lazy.array(values, "bf16" if _type(dtype) == "bf16" and getattr(values, "dtype", None) == _numpy.uint16 else "")
    return made if made.dtype == _type(dtype) else cast(made, dtype).realize()


def full(shape, value, dtype="f32"):
    shape = _numbers(shape)
    if isinstance(value, int) and not isinstance(value, bool) and _builtins.abs(value) > 2**53:  # more digits than a float has
        return expand(reshape(cast(value, dtype), [1] * len(shape)), shape)
    return _lazy.full(shape, value, _type(dtype))


def zeros(shape, dtype="f32"):
    return full(shape, 0, dtype)


def ones(shape, dtype="f32"):
    return full(shape, 1, dtype)


def zeros_like(x):
    return full(x.shape, 0, x.dtype)


def ones_like(x):
    return full(x.shape, 1, x.dtype)


def arange(begin, end=None, step=1, dtype=None):
    """As NumPy's; whole numbers are i64."""
    if end is None:
        begin, end = 0, begin
    whole = _builtins.all(float(n).is_integer() for n in (begin, step))
    return _lazy.arange(begin, end, step, _type(dtype or ("i64" if whole else "f32")))


def random(seed, shape, dtype="f32"):
    """Uniform in [0, 1): element i is random(seed, i) of the language. The seed may be an array."""
    return _lazy.random(seed, _numbers(shape), _type(dtype))


def random_normal(seed, shape, dtype="f32"):
    return _lazy.random_normal(seed, _numbers(shape), _type(dtype))


def random_int(seed, shape, low, high):
    return _lazy.random_int(seed, _numbers(shape), low, high)


# --- Element by element ---

def _function(name):
    def function(*operands):
        return _lazy.function(name, operands)
    function.__name__, function.__doc__ = name, f"{name} of the language (docs/language.md), element by element."
    return function


_functions = [name for name in _xhat.functions() if name not in ("max", "min", "random")]
for _name_of in _functions:
    globals()[_name_of] = _function(_name_of)
maximum, minimum, where = _function("max"), _function("min"), _lazy.where


def square(x):
    return x * x


def cast(x, dtype):
    return _lazy.cast(x, _type(dtype))


# --- Reductions ---

def _reduction(name):
    reduce = getattr(_lazy, name)

    def reduction(x, axis=None, keepdim=False):
        return reduce(x, axis, keepdim)
    reduction.__name__, reduction.__doc__ = name, f"{name} over an axis, several, or all; keepdim: reduced dimensions stay, as 1."
    return reduction


_reductions = ("sum", "prod", "mean", "max", "min", "any", "all", "argmax", "argmin")
for _name_of in _reductions:
    globals()[_name_of] = _reduction(_name_of)


def softmax(x, axis=-1):
    return _lazy.softmax(x, axis)


def log_softmax(x, axis=-1):
    return _lazy.log_softmax(x, axis)


# --- Movement ---

def _shape_of(shape):
    return _numbers(shape[0] if len(shape) == 1 and hasattr(shape[0], "__iter__") else shape)


def reshape(x, *shape):
    """One extent may be -1."""
    return _lazy.reshape(x, _shape_of(shape))


def expand(x, *shape):
    """Extents of 1 become others; -1: as it is."""
    return _lazy.expand(x, _shape_of(shape))


def permute(x, *order):
    return _lazy.permute(x, _shape_of(order))


def transpose(x, i=-2, j=-1):
    return _lazy.transpose(x, i, j)


def pad(x, padding, value=0):
    """A pair (before, after) for each dimension; fewer belong to the last ones."""
    return _lazy.pad(x, padding, value)


def shrink(x, bounds):
    """A pair (begin, end) for each dimension."""
    return _lazy.shrink(x, bounds)


def flip(x, axis=None):
    return _lazy.flip(x, axis)


def stride(x, steps):
    """Every step-th element of each dimension; negative: from the end."""
    return _lazy.stride(x, _numbers(steps))


def squeeze(x, axis=None):
    return _lazy.squeeze(x, axis)


def unsqueeze(x, axis):
    return _lazy.unsqueeze(x, axis)


def concat(parts, axis=0):
    return _lazy.concat(parts, axis)


def split(x, size, axis=0):
    """Pieces of that size, or of these sizes."""
    return _lazy.split(x, size, axis)


def take(x, indices, axis=0):
    """x at these positions along an axis: rows of a table."""
    return _lazy.take(x, array(indices), axis)


def gather(x, indices, axis):
    """y[i][j] = x[indices[i][j]][j], for axis 0 of two."""
    return _lazy.gather(x, array(indices), axis)


# --- Products, programs, gradients ---

def einsum(subscripts, *operands):
    return _lazy.einsum(subscripts, operands)


def matmul(a, b):
    return array(a) @ b


def conv(x, w, stride=1, padding=0, dilation=1, groups=1):
    """x[n, channels, ...], w[out, channels / groups, ...]; one number for all dimensions, or one each."""
    return _lazy.conv(x, w, _numbers(stride), _numbers(padding), _numbers(dilation), groups)


def pool(x, size, kind="max", stride=None, padding=0, dilation=1):
    """Windows of the last dimensions, a number for each of them in size; kind is max, min, sum or mean."""
    return _lazy.pool(x, _numbers(size), kind, _numbers(stride) if stride is not None else [], _numbers(padding), _numbers(dilation))


def apply(op, *arguments):
    """An op or program of xhat.op on arrays: its output, or a tuple of them."""
    results = _lazy.apply(op, arguments)
    return results[0] if len(results) == 1 else tuple(results)


def grad(loss, wrt):
    """d loss / d x; lazy. wrt: an array, or several."""
    return _lazy.grad(loss, [wrt])[0] if isinstance(wrt, Array) else _lazy.grad(loss, wrt)


def realize(*arrays):
    """Computes several arrays, or a list of them, at once: kernels are shared, and each value is computed once."""
    _lazy.realize(arrays[0] if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else arrays)


def viz(*arrays):
    """The page of what realizing would run; notebooks show it, .save(path) writes it."""
    return Page(_lazy.viz(arrays))


counts, set_option = _lazy.counts, _lazy.set_option


# --- What an array has of this ---

def _getitem(x, subscripts):
    if not isinstance(subscripts, tuple):
        subscripts = (subscripts,)
    if Ellipsis in [s for s in subscripts if s is Ellipsis]:
        at = [s is Ellipsis for s in subscripts].index(True)
        left = len(x.shape) - _builtins.sum(s is not None and s is not Ellipsis for s in subscripts)
        subscripts = subscripts[:at] + (slice(None),) * left + subscripts[at + 1:]
    for k, s in enumerate(subscripts):
        if s is None or isinstance(s, slice) or hasattr(s, "__index__") and not getattr(s, "shape", ()):
            continue
        whole = [t for t in subscripts if not (isinstance(t, slice) and t == slice(None))]
        if len(whole) > 1:
            raise _xhat.Error("slice: an array of positions stands with whole dimensions only; take() or gather() say the rest")
        return take(x, array(s), k)
    return x._part(subscripts)


def _setitem(x, subscripts, value):
    part = _getitem(x, subscripts)
    if not (isinstance(value, Array) and part._same_view(value)):
        _assign(part, value)


def _assigned(name):
    operation = getattr(Array, name)

    def method(self, other):
        return _assign(self, operation(self, array(other, self.dtype) if isinstance(other, (list, tuple)) else other))
    return method


def _assign(x, value):
    """Makes that the array's value, in place when it is realized; what was built from the old value keeps it."""
    x._assign(array(value, x.dtype) if isinstance(value, (list, tuple)) else value)
    return x


def _realize(x):
    """Computes the value, once; the array itself."""
    x._realize()
    return x


def _truth(x):
    return bool(x.item())


def _length(x):
    if not x.shape:
        raise TypeError("an array without dimensions has no length")
    return x.shape[0]


Array.assign, Array.realize = _assign, _realize
Array.__getitem__, Array.__setitem__, Array.__len__ = _getitem, _setitem, _length
Array.__iter__ = lambda x: (x[i] for i in range(_length(x)))
for _name_of in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or"):
    setattr(Array, f"__i{_name_of}__", _assigned(f"__{_name_of}__"))
Array.__bool__, Array.__float__, Array.__int__ = _truth, lambda x: float(x.item()), lambda x: int(x.item())
Array.__format__ = lambda x, how: format(x.item() if how else str(x), how)
Array.__abs__ = lambda x: globals()["abs"](x)
Array.__repr__ = Array.__str__ = lambda x: x.describe()
Array.__array__ = lambda x, dtype=None, copy=None: x.numpy() if dtype is None else x.numpy().astype(dtype)
Array.__array_ufunc__ = None  # NumPy's arrays leave signs to this one
Array.ndim, Array.size = property(lambda x: len(x.shape)), property(lambda x: int(_numpy.prod(x.shape, dtype=_numpy.int64)))
Array.T = property(transpose)
Array.__hash__ = object.__hash__
for _name_of in ("reshape", "expand", "permute", "transpose", "squeeze", "unsqueeze", "flip", "cast", "softmax", "square", *_reductions):
    setattr(Array, _name_of, globals()[_name_of])
__all__ = ["Array", "array", "full", "zeros", "ones", "zeros_like", "ones_like", "arange", "random", "random_normal", "random_int", *_functions, "maximum",
           "minimum", "where", "square", "cast", *_reductions, "softmax", "log_softmax", "reshape", "expand", "permute", "transpose", "pad", "shrink", "flip",
           "stride", "squeeze", "unsqueeze", "concat", "split", "take", "gather", "einsum", "matmul", "conv", "pool", "apply", "grad", "realize", "viz",
           "counts", "set_option"]
