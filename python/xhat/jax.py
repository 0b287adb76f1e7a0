"""Ops as functions of JAX: under jit, grad, jvp, vmap and what these make of each other.

    norm = xhat.jax.op(xhat.load("rms_norm.xh"))
    jax.grad(lambda x: norm(x, gain).sum())(x)

XLA calls the kernels by a handler of the extension (jax.ffi), or where that was built without jaxlib's headers by way of Python
(`backend` says which: "ffi" or "callback"). docs/python.md says more.
"""
import functools

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

from . import Error, Op, _xhat
from ._shapes import in_order, shape_function, unique_name

__all__ = ["Function", "backend", "op"]

DTYPES = {"f64": jnp.float64, "f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16, "i64": jnp.int64, "i32": jnp.int32,
          "u32": jnp.uint32, "u8": jnp.uint8, "bool": jnp.bool_}
backend = "ffi" if hasattr(_xhat, "xla_handler") else "callback"
if backend == "ffi":
    jax.ffi.register_ffi_target("xhat_call", _xhat.xla_handler, platform="cpu")
_made = {}  # by key


def op(op, **dims):
    """The op as a function of JAX's arrays. dims: of those that no array tells."""
    if not isinstance(op, Op):
        raise Error(f"xhat.jax.op wants an xhat.Op, as xhat.op(text) gives, not a {type(op).__name__}")
    return _derived(op, dims)


@functools.cache
def _vmap_or_none(op, mapped):
    try:
        return op.vmap(*mapped)
    except Error:  # loops that stay, stated gradients
        return None


def _vmap(op, mapped, dims):
    made = _vmap_or_none(op, mapped)
    return None if made is None else _derived(made, dims)


def _derived(op, dims):
    key = unique_name(op, op.name, dims)
    if key not in _made:
        _made[key] = Function(op, key, dims)
    return _made[key]


class _Call:
    """One entry of XLA's handler. gradient: of (inputs, cotangents), by forward and backward, else of inputs alone."""

    def __init__(self, op, key, dims, gradient=False):
        self.op, self.key, self.dims, self.gradient = op, key, {n: v for n, v in dims.items() if n in op.dims}, gradient
        _xhat.register_call(key, op, self.dims, gradient)
        self.names = [*op.inputs, *op.cotangents] if gradient else op.inputs
        self._shapes_of = None if gradient else shape_function(op, self.dims)

    @functools.cached_property
    def dtypes(self):
        """Of the arguments."""
        of_outputs = [t for t in self.op.output_dtypes if jnp.issubdtype(DTYPES[t], jnp.floating)]
        return [DTYPES[t] for t in (*self.op.input_dtypes, *(of_outputs if self.gradient else ()))]

    def results(self, avals):
        """(shape, dtype) of each result."""
        for name, aval, dtype in zip(self.names, avals, self.dtypes):
            if aval.dtype != dtype:
                hint = "; set jax_enable_x64, or declare 32 bits" if jnp.dtype(dtype).itemsize == 8 and not jax.config.jax_enable_x64 else ""
                raise Error(f"op {self.op.name}: {name} is declared {jnp.dtype(dtype).name}, but the array is {aval.dtype.name}{hint}")
        if self.gradient:
            return [(avals[self.op.inputs.index(n)].shape, DTYPES[self.op.input_dtypes[self.op.inputs.index(n)]]) for n in self.op.differentiable]
        for name, aval, shape in zip(self.names, avals, _xhat.shapes(self.op, False)):
            if len(shape) != len(aval.shape):
                raise Error(f"op {self.op.name}: {name} has {len(aval.shape)} dimension(s), but {len(shape)} are declared")
        return list(zip(self._shapes_of([a.shape for a in avals]), [DTYPES[t] for t in self.op.output_dtypes]))

    def __call__(self, *arguments):
        made = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.results(arguments)]
        if backend == "ffi":
            return jax.ffi.ffi_call("xhat_call", made)(*arguments, key=self.key)
        return jax.pure_callback(self._in_python, made, *arguments)

    def _in_python(self, *arguments):
        arguments = [np.asarray(a) for a in arguments]
        if not self.gradient:
            results = self.op(*arguments, **self.dims)
        else:
            _, kept = self.op.forward(*arguments[: len(self.op.inputs)], **self.dims)
            results = self.op.backward(kept, *arguments[len(self.op.inputs):])
        return results if isinstance(results, tuple) else (results,)


class Function:
    """A function of arrays, with rules for JAX's transformations. What the forward keeps for the backward are arrays among JAX's own."""

    def __init__(self, op, key, dims):
        self.op, self.key, self.dims = op, key, dims
        self.inference = _Call(op, key, dims)
        self._floats = [jnp.issubdtype(DTYPES[t], jnp.floating) for t in op.output_dtypes]
        self.wrt = op.differentiable if any(self._floats) else []

    def __call__(self, *arrays, **named):
        op = self.op
        arrays = in_order(op.name, op.inputs, arrays, named, "arrays")
        # Numbers take the declared type.
        arrays = [jnp.asarray(a, t) if isinstance(a, (bool, int, float)) else jnp.asarray(a) for a, t in zip(arrays, self.inference.dtypes)]
        results = call_p.bind(*arrays, function=self, stash=False)
        return results[0] if len(results) == 1 else tuple(results)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _derived, (self.op, self.dims)

    def __repr__(self):
        return f"<xhat.jax {self.op!r}>"

    @functools.cached_property
    def _directions(self):
        """Forward with stash and backward; None for a program with loops that stay, whose backward runs the forward again."""
        try:
            return self.op._directions(self.dims)[1:]
        except Error as e:
            if "loops" not in str(e):
                raise
            return None

    def vmap(self, mapped):
        """The op for each element of a first axis of these inputs; None where it has to be called one by one."""
        return _vmap(self.op, tuple(mapped), self.dims)

    def call(self, stash):
        return self.forward if stash else self.inference

    @functools.cached_property
    def with_stash(self):
        """inputs -> outputs, stash: a Function; this one if nothing is kept."""
        if self._directions is None or self._directions[0].outputs == self.op.outputs:
            return self
        return _derived(self._directions[0], self.dims)

    @property
    def forward(self):
        return self.with_stash.inference

    @functools.cache
    def backward(self, wrt):
        """The gradients of these inputs by what was kept: a Function, and where its arguments stand among inputs, kept and cotangents."""
        forward, backward = self._directions
        chosen = _derived(backward.only([backward.outputs[self.wrt.index(n)] for n in wrt]), self.dims)
        count = len(self.op.inputs)
        place = {n: i for i, n in enumerate(self.op.inputs)}
        place.update({n: count + len(forward.outputs) + i for i, n in enumerate(self.op.cotangents)})
        place.update({n: count + i for i, n in enumerate(forward.outputs) if n not in place})
        return chosen, [place[n] for n in chosen.op.inputs]

    @functools.cache
    def backward_of_loops(self, wrt):
        """(inputs, cotangents) -> gradients, by the forward again."""
        return _Call(self.op.with_options(wrt=list(wrt)), f"{self.key}_backward_{'_'.join(wrt)}", self.dims, gradient=True)

    @functools.cache
    def push(self, wrt):
        """(inputs, tangents of these inputs) -> tangents of float outputs: a Function."""
        product = self.op.with_options(wrt=list(wrt)).jvp
        return _derived(product.only(product.outputs[len(self.op.outputs):]), self.dims)

    @functools.cache
    def gradient(self, wrt):
        """(inputs, cotangents) -> gradients of these inputs: a Function, without a stash."""
        product = self.op.with_options(wrt=list(wrt)).vjp
        return _derived(product.only(product.outputs[len(self.op.outputs):]), self.dims)


# Two primitives.
#   call(inputs)                          the op; with `stash`, what its forward keeps follows the outputs
#   push(inputs, kept, tangents)          its tangents, linear in those of the inputs `wrt`; transposed, it is its backward
# The tangent of a push along its inputs is a push of the op that it computes, so there are derivatives of any order.
call_p, push_p, pull_p = (jax.extend.core.Primitive(f"xhat_{name}") for name in ("call", "push", "pull"))
for primitive in (call_p, push_p, pull_p):
    primitive.multiple_results = True


def _run_call(*arrays, function, stash):
    return function.call(stash)(*arrays)


def _run_push(*arrays, function, wrt, kept):
    inputs, tangents = arrays[: len(function.op.inputs)], arrays[len(function.op.inputs) + kept:]
    return call_p.bind(*inputs, *tangents, function=function.push(wrt), stash=False)


def _run_pull(*arrays, function, wrt, kept):
    count = len(function.op.inputs)
    if function._directions is None:
        return function.backward_of_loops(wrt)(*arrays[:count], *arrays[count + kept:])
    chosen, order = function.backward(wrt)
    return chosen.inference(*(arrays[i] for i in order))


def _avals_of_call(*avals, function, stash):
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in function.call(stash).results(avals)]


def _avals_of_push(*avals, function, wrt, kept):
    outputs = function.inference.results(avals[: len(function.op.inputs)])
    return [jax.core.ShapedArray(shape, dtype) for (shape, dtype), moves in zip(outputs, function._floats) if moves]


def _avals_of_pull(*avals, function, wrt, kept):
    return [jax.core.ShapedArray(avals[function.op.inputs.index(n)].shape, avals[function.op.inputs.index(n)].dtype) for n in wrt]


@functools.cache
def _compiled(primitive, parameters):
    return jax.jit(lambda *arrays: primitive.bind(*arrays, **dict(parameters)))


def _eagerly(primitive):
    return lambda *arrays, **parameters: _compiled(primitive, tuple(parameters.items()))(*arrays)


def _instantiated(tangent, aval):
    return jnp.zeros(aval.shape, aval.dtype) if type(tangent) is ad.Zero else tangent


def _zero(primal):
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def _call_jvp(primals, tangents, *, function, stash):
    wrt = tuple(n for n, t in zip(function.op.inputs, tangents) if n in function.wrt and type(t) is not ad.Zero)
    if not wrt:
        results = call_p.bind(*primals, function=function, stash=stash)
        return results, [_zero(r) for r in results]
    if stash and function.forward is not function.inference:
        # What is kept moves too: under vmap the backward is an op like any other, which is differentiated by all that it reads.
        return _call_jvp(primals, tangents, function=function.with_stash, stash=False)
    results = call_p.bind(*primals, function=function, stash=True)
    moving = [t for n, t in zip(function.op.inputs, tangents) if n in wrt]
    made = iter(push_p.bind(*primals, *results, *moving, function=function, wrt=wrt, kept=len(results)))
    outputs = len(function.op.outputs)
    pushed = [next(made) if moves else _zero(r) for r, moves in zip(results, function._floats)]
    return results[:outputs], pushed


def _linear_jvp(primitive, primals, tangents, linear, product, product_inputs):
    """primitive(primals) is linear in the last `linear` of them; product is what it computes, a Function of product_inputs."""
    still = len(primals) - linear
    results = primitive(*primals)
    made = None
    if any(type(t) is not ad.Zero for t in tangents[still:]):
        along = [_instantiated(t, p) for t, p in zip(tangents[still:], primals[still:])]
        made = primitive(*primals[:still], *along)
    wrt = tuple(n for n, i in zip(product.op.inputs, product_inputs) if i < still and n in product.wrt and type(tangents[i]) is not ad.Zero)
    if wrt:
        moving = [tangents[i] for n, i in zip(product.op.inputs, product_inputs) if n in wrt]
        pushed = push_p.bind(*(primals[i] for i in product_inputs), *moving, function=product, wrt=wrt, kept=0)
        made = pushed if made is None else [a + b for a, b in zip(made, pushed)]
    return results, [_zero(r) for r in results] if made is None else made


def _push_jvp(primals, tangents, *, function, wrt, kept):
    count = len(function.op.inputs)
    return _linear_jvp(functools.partial(push_p.bind, function=function, wrt=wrt, kept=kept), primals, tangents, len(wrt), function.push(wrt),
                       [*range(count), *range(count + kept, len(primals))])


def _pull_jvp(primals, tangents, *, function, wrt, kept):
    count = len(function.op.inputs)
    return _linear_jvp(functools.partial(pull_p.bind, function=function, wrt=wrt, kept=kept), primals, tangents, len(primals) - count - kept,
                       function.gradient(wrt), [*range(count), *range(count + kept, len(primals))])


def _push_transpose(cotangents, *arrays, function, wrt, kept):
    count, outputs = len(function.op.inputs), len(function.op.outputs)
    avals = [a.aval if ad.is_undefined_primal(a) else a for a in arrays]
    of_outputs = [aval for aval in _avals_of_push(*avals, function=function, wrt=wrt, kept=kept)]
    cotangents = [_instantiated(c, a) for c, a in zip(cotangents, of_outputs)]
    known = arrays[: count + kept]
    if kept == 0:  # of a product: its backward keeps nothing
        gradients = call_p.bind(*known, *cotangents, function=function.gradient(wrt), stash=False)
    else:
        gradients = pull_p.bind(*known, *cotangents, function=function, wrt=wrt, kept=kept)
    return [None] * (count + kept) + list(gradients)


def _pull_transpose(cotangents, *arrays, function, wrt, kept):
    # The backward is linear in its cotangents; transposed, it is the push again.
    count = len(function.op.inputs)
    known = arrays[: count + kept]
    avals = [arrays[function.op.inputs.index(n)] for n in wrt]
    tangents = [_instantiated(c, a) for c, a in zip(cotangents, avals)]
    return [None] * (count + kept) + list(push_p.bind(*known, *tangents, function=function, wrt=wrt, kept=kept))


def _one_by_one(primitive, arrays, axes, parameters):
    """Call by call; what is made of one says nothing of another."""
    moving = [jnp.moveaxis(a, axis, 0) for a, axis in zip(arrays, axes) if axis is not None]

    def one(parts):
        parts = iter(parts)
        return primitive.bind(*(a if axis is None else next(parts) for a, axis in zip(arrays, axes)), **parameters)

    results = jax.lax.map(one, moving)
    return results, [0] * len(results)


def _in_front(arrays, axes):
    return [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arrays, axes)]


def _at_once(function, arrays, axes):
    """All calls of a Function as one op with another axis; None where there is none."""
    batched = function.vmap(n for n, axis in zip(function.op.inputs, axes) if axis is not None)
    if batched is None:
        return None
    results = call_p.bind(*_in_front(arrays, axes), function=batched, stash=False)
    return results, [0] * len(results)


def _call_vmap(arrays, axes, *, function, stash):
    every = function.with_stash if stash else function  # what is kept has the axis like all else
    return _at_once(every, arrays, axes) or _one_by_one(call_p, arrays, axes, {"function": function, "stash": stash})


def _pull_vmap(arrays, axes, *, function, wrt, kept):
    made = None
    if function._directions is not None:
        chosen, order = function.backward(wrt)
        if any(axes[i] is not None for i in order):  # else only tensors that the backward does not read have the axis
            made = _at_once(chosen, [arrays[i] for i in order], [axes[i] for i in order])
    return made or _one_by_one(pull_p, arrays, axes, {"function": function, "wrt": wrt, "kept": kept})


def _push_vmap(arrays, axes, *, function, wrt, kept):
    # Of the op for all calls, so that it stays linear in its tangents: an input has the axis if it or its tangent does.
    count, inputs = len(function.op.inputs), function.op.inputs
    tangents = dict(zip(wrt, range(count + kept, len(arrays))))
    mapped = tuple(n for i, n in enumerate(inputs) if axes[i] is not None or n in tangents and axes[tangents[n]] is not None)
    batched = function.vmap(mapped) if mapped else None
    if batched is None:
        return _one_by_one(push_p, arrays, axes, {"function": function, "wrt": wrt, "kept": kept})
    size = next(a.shape[axis] for a, axis in zip(arrays, axes) if axis is not None)
    arrays = _in_front(arrays, axes)
    for i in [*range(count), *tangents.values()]:
        name = inputs[i] if i < count else wrt[i - count - kept]
        if name in mapped and axes[i] is None:
            arrays[i] = jnp.broadcast_to(arrays[i], (size, *arrays[i].shape))
    results = push_p.bind(*arrays[:count], *arrays[count + kept:], function=batched, wrt=wrt, kept=0)
    return results, [0] * len(results)


for primitive, run, avals, jvp, vmap in ((call_p, _run_call, _avals_of_call, _call_jvp, _call_vmap),
                                         (push_p, _run_push, _avals_of_push, _push_jvp, _push_vmap),
                                         (pull_p, _run_pull, _avals_of_pull, _pull_jvp, _pull_vmap)):
    primitive.def_impl(_eagerly(primitive))
    primitive.def_abstract_eval(avals)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = vmap
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=True))
ad.primitive_transposes[push_p] = _push_transpose
ad.primitive_transposes[pull_p] = _pull_transpose
