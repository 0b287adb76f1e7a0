"""Ops as custom ops of PyTorch: under eager execution, torch.compile(fullgraph=True), checkpointing, torch.func, and differentiated.

    norm = xhat.torch.custom_op(xhat.load("rms_norm.xh"))
    y = norm(x, gain)
    y.sum().backward()

What the forward keeps for the backward are tensors of PyTorch, results of the op `xhat::NAME_forward`, so PyTorch sees, frees, offloads and
recomputes them like its own. docs/python.md says more.
"""
import functools

import torch
from torch.autograd import forward_ad

from . import Error, Op, _xhat
from ._shapes import in_order, shape_function, unique_name

__all__ = ["CustomOp", "custom_op"]

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "u32": torch.uint32, "u8": torch.uint8, "bool": torch.bool}
_library = torch.library.Library("xhat", "FRAGMENT")
_made = {}  # by name: what is registered stays
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def custom_op(op, name=None, **dims):
    """The op as a function of tensors. name: in torch.ops.xhat it is called NAME_HASH; dims: of those that no tensor tells."""
    if not isinstance(op, Op):
        raise Error(f"custom_op wants an xhat.Op, as xhat.op(text) gives, not a {type(op).__name__}")
    return _custom_op(op, name or op.name, dims)


def _custom_op(op, wanted, dims):
    name = unique_name(op, wanted, dims)
    if name not in _made:
        _made[name] = CustomOp(op, name, dims)
        _made[name].made_by = op, wanted, dims
    return _made[name]


def _transformed():
    """Under torch.func, or in forward mode: tensors may move without saying so by requires_grad."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _nobody_looks_on():
    """No transformation and no mode: then nothing need go by the dispatcher, which takes longer than the call."""
    return not _transformed() and not torch._C._len_torch_dispatch_stack()


def _guarded(name, kernel):
    """What PyTorch registers has no forward mode: it would drop tangents without a word."""

    def run(*arguments):
        if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():  # functions of autograd switch it off
            raise Error(f"xhat::{name} itself has no forward mode, nor under torch.compile; call what custom_op gave, eagerly")
        return kernel(*arguments)

    return run


class _Registered:
    """One op in torch.ops.xhat: its kernel, what is known of its results before it runs, its rule for vmap."""

    def __init__(self, name, inputs, outputs, kernel, fake, more=""):
        self.name, self.single, self.kernel = name, len(outputs) == 1, kernel
        self.function = self.eager = self.batched = None
        arguments = ", ".join(f"Tensor {n}_" for n in inputs) + more  # some names are PyTorch's own words
        _library.define(f"{self.name}({arguments}) -> " + ("Tensor" if self.single else f"({', '.join(['Tensor'] * len(outputs))})"),
                        tags=(torch.Tag.needs_exact_strides,) if hasattr(torch.Tag, "needs_exact_strides") else ())
        _library.impl(self.name, _guarded(self.name, kernel), "CPU")
        torch.library.register_fake(f"xhat::{self.name}", _guarded(self.name, fake), lib=_library)
        self.overload = getattr(torch.ops.xhat, self.name).default
        torch.library.register_vmap(f"xhat::{self.name}", self._vmap, lib=_library)

    def __call__(self, *tensors):
        """Its results as a tuple."""
        results = self.call(*tensors)
        return (results,) if self.single else results

    def call(self, *tensors):
        if torch.compiler.is_compiling():
            return self.overload(*tensors)
        if _transformed():
            if self.function is not None:
                return self.function.apply(*tensors)
            with forward_ad._set_fwd_grad_enabled(False):  # there is nothing to differentiate
                return self.overload(*tensors)
        if not _nobody_looks_on() or not all(type(t) is int or type(t) in _PLAIN and t.is_cpu for t in tensors):
            return self.overload(*tensors)
        if self.eager is not None and torch.is_grad_enabled() and any(type(t) is not int and t.requires_grad for t in tensors):
            return self.eager.apply(*tensors)
        return self.kernel(*tensors)

    def differentiate(self, setup, backward, jvp):
        """Registers it. torch.func does not take what is registered, and gets a function of the same; so does plain eager execution."""
        torch.library.register_autograd(f"xhat::{self.name}", backward, setup_context=setup, lib=_library)

        def run(ctx, *tensors):
            results = self.kernel(*tensors)
            setup(ctx, tensors, results)
            return results

        def function(**members):
            return type(self.name, (torch.autograd.Function,), {n: staticmethod(f) if callable(f) else f for n, f in members.items()})

        def pull(ctx, *grads):
            return backward(ctx, *grads)

        self.eager = function(forward=run, backward=pull)
        self.function = function(forward=lambda *tensors: self.overload(*tensors), setup_context=lambda ctx, inputs, output: setup(ctx, inputs, output),
                                 backward=pull, jvp=lambda ctx, *tangents: jvp(ctx, *tangents), generate_vmap_rule=True)

    def _vmap(self, info, in_dims, *tensors):
        batched = self.batched and self.batched(tuple(d is not None for d in in_dims), tensors)
        if batched is not None:
            results = batched(*[t if d is None else t.movedim(d, 0) for t, d in zip(tensors, in_dims)])
            return (results, 0) if self.single else (results, (0,) * len(results))
        # Call by call; what the op makes of one says nothing of another.
        calls = []
        for i in range(info.batch_size):
            results = self.overload(*[t if d is None else t.select(d, i) for t, d in zip(tensors, in_dims)])
            calls.append((results,) if self.single else results)
        if not calls:
            raise Error(f"xhat::{self.name}: vmap over no elements at all does not tell the shapes of its results")
        results = tuple(torch.stack(r) for r in zip(*calls))
        return (results[0], 0) if self.single else (results, (0,) * len(results))


@functools.cache
def _vmap(op, mapped, dims):
    """The op for each element of a first axis of these inputs, registered; None for loops that stay and stated gradients."""
    try:
        batched = op.vmap(*(n for n, m in zip(op.inputs, mapped) if m))
    except Error:
        return None
    dims = {n: v for n, v in dims if n in op.dims}
    name = unique_name(batched, batched.name, dims)
    if name not in _made:
        _made[name] = _register(name, batched, dims)
    return _made[name].overload if isinstance(_made[name], _Registered) else _made[name].inference.overload


def _register(name, op, dims=None):
    """An xhat.Op without derivatives, by itself."""
    shapes_of, dtypes, dims = shape_function(op, dims or {}, torch.sym_min, torch.sym_max), [DTYPES[t] for t in op.output_dtypes], dims or {}
    single = len(dtypes) == 1

    def fake(*tensors):
        made = [torch.empty(s, dtype=t) for s, t in zip(shapes_of([x.shape for x in tensors]), dtypes)]
        return made[0] if single else tuple(made)

    kernel = (lambda *tensors: op(*tensors, **dims)) if dims else op.__call__
    made = _Registered(name, op.inputs, op.outputs, kernel, fake)
    made.batched = lambda mapped, tensors: _vmap(op, mapped, tuple(dims.items()))
    return made


class CustomOp:
    """A function of tensors; numbers may stand for scalar ones. `inference`, `forward` are the ops in torch.ops.xhat behind it."""

    def __init__(self, op, name, dims):
        self.op, self.name, self._dims = op, name, dims
        self._inputs, self._scalars = list(op.inputs), [len(s) == 0 for s in _xhat.shapes(op, False)]
        self._dtypes = [DTYPES[t] for t in op.input_dtypes]
        self._outputs = len(op.outputs)
        self.inference = _register(name, op, dims)
        self._wrt = op.differentiable
        self._moving = [n in self._wrt for n in self._inputs]
        self._float_outputs = [o for o, t in zip(op.outputs, op.output_dtypes) if DTYPES[t].is_floating_point]
        self.forward = None
        if not self._wrt or not self._float_outputs:
            return  # nothing to differentiate
        self._cotangents = op.cotangents
        self._places = [self._inputs.index(n) for n in self._wrt]
        self._products = {}  # made when they are first asked for
        self._plan()

    def __call__(self, *tensors, **named):
        if named or len(tensors) != len(self._inputs):
            tensors = in_order(self.name, self._inputs, tensors, named, "tensors")
        elif self.forward is not None and not torch.compiler.is_compiling() and _nobody_looks_on():
            moves = False  # plain eager execution: the short way, said once more for its speed
            for t in tensors:
                if type(t) not in _PLAIN or not t.is_cpu:
                    break
                moves = moves or t.requires_grad
            else:
                if not moves or not torch.is_grad_enabled():
                    return self.inference.kernel(*tensors)
                return self._without_stash(self.forward.eager.apply(*tensors))
        if not all(isinstance(t, torch.Tensor) for t in tensors):
            tensors = self._as_tensors(tensors)
        if self.forward is None:
            return self.inference.call(*(t.detach() for t in tensors))
        moves = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
        if not moves and (torch.compiler.is_compiling() or not _transformed()):
            return self.inference.call(*tensors)
        return self._without_stash(self.forward.call(*tensors))

    def _without_stash(self, results):
        if self.forward.single or self._results == self._outputs:
            return results
        return results[0] if self._outputs == 1 else results[: self._outputs]

    def __repr__(self):
        return f"<xhat.torch {self.op!r}>"

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _custom_op, self.made_by

    def _as_tensors(self, values):
        made = []
        for value, name, scalar, dtype in zip(values, self._inputs, self._scalars, self._dtypes):
            if not isinstance(value, torch.Tensor):
                if not scalar or not isinstance(value, (bool, int, float)):
                    raise Error(f"op {self.name}: {name} is a {type(value).__name__}; give a tensor" + (" or a number" if scalar else ""))
                value = torch.tensor(value, dtype=dtype)
            made.append(value)
        return tuple(made)

    # What is registered for gradients:
    #   NAME_forward(inputs) -> outputs, stash          its autograd calls NAME_backward
    #   NAME_backward(inputs, kept, cotangents, wanted) -> gradients; those whose bit in `wanted` is not set are empty
    # The autograd of NAME_backward takes it for what it is, the gradient of the op, and calls the vjp of that, a CustomOp like this one: so there
    # are derivatives of any order.

    def _plan(self):
        """Which tensors the backward reads. A program with loops that stay runs its forward again: its stash is no list of tensors."""
        try:
            _, forward, backward = self.op._directions(self._dims)
        except Error as e:
            if "loops" not in str(e):
                raise
            self.forward, self._gradient_op = self.inference, None
            self._read = [(True, i) for i in range(len(self._inputs))]
            self._results = self._outputs
        else:
            self.forward = _register(f"{self.name}_forward", forward, self._dims) if forward.outputs != self.op.outputs else self.inference
            self._gradient_op, self._results = backward, len(forward.outputs)
            self._read = []  # of what the backward reads beside cotangents: (is it an input, its place)
            for name in backward.inputs:
                if name in self._inputs:
                    self._read.append((True, self._inputs.index(name)))
                elif name not in self._cotangents:
                    self._read.append((False, forward.outputs.index(name)))
        self._kept = [i for is_input, i in self._read if not is_input]
        self._still = [i for i, t in enumerate(self.op.output_dtypes) if not DTYPES[t].is_floating_point] + [*range(self._outputs, self._results)]
        self._register_backward()
        self.forward.differentiate(self._save, self._pull, self._push)

    def _save(self, ctx, inputs, output):
        results = (output,) if self.forward.single else output
        ctx.set_materialize_grads(_transformed())  # torch.func wants zeros
        if self._still:
            ctx.mark_non_differentiable(*[results[i] for i in self._still])
        ctx.shapes = [r.shape for r in results[: self._outputs]]
        saved = (*inputs, *[results[i] for i in self._kept])
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)  # the same: torch.func remembers one list of batch axes

    def _pull(self, ctx, *grads):
        saved = ctx.saved_tensors  # once: checkpoints count how often
        wanted = sum(1 << i for i, place in enumerate(self._places) if ctx.needs_input_grad[place])
        cotangents = []
        for i, (name, dtype) in enumerate(zip(self.op.outputs, self.op.output_dtypes)):
            if name in self._float_outputs:
                cotangents.append(grads[i] if grads[i] is not None else torch.zeros(ctx.shapes[i], dtype=DTYPES[dtype]))
        gradients = self.backward(*saved, *cotangents, wanted)
        results = [None] * len(self._inputs)
        for i, place in enumerate(self._places):
            if wanted >> i & 1:
                results[place] = gradients[i]
        return tuple(results)

    def _register_backward(self):
        names = [*self._inputs, *(f"kept{i}" for i in self._kept), *self._cotangents]

        def fake(*arguments):
            wanted = arguments[-1]
            made = [torch.empty(arguments[p].shape if wanted >> i & 1 else (0,), dtype=self._dtypes[p]) for i, p in enumerate(self._places)]
            return made[0] if len(made) == 1 else tuple(made)

        def kernel(*arguments):
            wanted = arguments[-1]
            run = self._narrow.get(wanted)
            if run is None:
                run = self._narrow[wanted] = self._narrowed(wanted)
            results = run(arguments)
            return results if len(self._places) == 1 else results if wanted == (1 << len(self._places)) - 1 else self._spread(results, wanted)

        self._narrow = {0: lambda arguments: ()}
        self.backward = _Registered(f"{self.name}_backward", names, self._places, kernel, fake, ", int wanted")
        self.backward.batched = self._backward_for_all
        self.backward.differentiate(lambda ctx, inputs, output: self._save_backward(ctx, inputs), self._pull_backward, self._push_backward)

    def _chosen(self, wanted):
        """The backward for these gradients, and where its inputs stand among the arguments of NAME_backward."""
        op = self._gradient_op.only([n for i, n in enumerate(self._gradient_op.outputs) if wanted >> i & 1])
        count = len(self._inputs)
        where = {n: i for i, n in enumerate(self._inputs)}
        where.update({n: count + len(self._kept) + i for i, n in enumerate(self._cotangents)})
        where.update({n: count + i for i, n in enumerate(n for n in self._gradient_op.inputs if n not in where)})
        return op, [where[n] for n in op.inputs]

    def _narrowed(self, wanted):
        """A function of the arguments of NAME_backward that gives these gradients."""
        count, dims = len(self._inputs), self._dims
        if self._gradient_op is None:  # a program with loops: its forward runs again
            op = self.op.with_options(wrt=[n for i, n in enumerate(self._wrt) if wanted >> i & 1])

            def run(arguments):
                _, kept = op.forward(*arguments[:count], **dims)
                return op.backward(kept, *arguments[count:-1])

            return run
        op, order = self._chosen(wanted)
        dims = {n: v for n, v in dims.items() if n in op.dims}
        if not dims and order == [*range(count + len(self._kept) + len(self._cotangents))]:
            return lambda arguments: op(*arguments[:-1])
        return lambda arguments: op(*[arguments[i] for i in order], **dims)

    def _spread(self, results, wanted, first=()):
        """The gradients that are wanted, and empty tensors in place of the others. first: extents of an axis before all others."""
        results = iter((results,) if isinstance(results, torch.Tensor) else results)
        return tuple(next(results) if wanted >> i & 1 else torch.empty((*first, 0), dtype=self._dtypes[p]) for i, p in enumerate(self._places))

    def _backward_for_all(self, mapped, arguments):
        if self._gradient_op is None:
            return None
        wanted = arguments[-1]
        op, order = self._chosen(wanted)
        if not any(mapped[i] for i in order):  # then only tensors that the backward does not read have the axis
            return None
        batched = _vmap(op, tuple(mapped[i] for i in order), tuple(self._dims.items()))
        if batched is None:
            return None

        def run(*arguments):
            results = batched(*[arguments[i] for i in order])
            first = next(t.shape[:1] for t, m in zip(arguments, mapped) if m)
            return results if len(self._places) == 1 else self._spread(results, wanted, first)

        return run

    def _save_backward(self, ctx, inputs):
        ctx.set_materialize_grads(_transformed())  # torch.func wants zeros
        ctx.wanted = inputs[-1]
        ctx.save_for_backward(*inputs[:-1])
        ctx.save_for_forward(*inputs[:-1])

    def _without_kept(self, arguments):
        """What is kept follows from the inputs."""
        count = len(self._inputs)
        return (*arguments[:count], *arguments[count + len(self._kept):])

    def _pull_backward(self, ctx, *grads):
        count, arguments = len(self._inputs), self._without_kept(ctx.saved_tensors)
        grads = [torch.zeros_like(arguments[p]) if grads[i] is None else grads[i] for i, p in enumerate(self._places) if ctx.wanted >> i & 1]
        one = self._gradient(ctx.wanted)
        results = iter(self._product("vjp", one, one.differentiable, arguments, grads))
        by_argument = [next(results) if n in one.differentiable else None for n in one.inputs]
        return (*by_argument[:count], *([None] * len(self._kept)), *by_argument[count:], None)

    def _push_backward(self, ctx, *tangents):
        arguments, one = self._without_kept(ctx.saved_tensors), self._gradient(ctx.wanted)
        made = iter(self._tangents(one, arguments, self._without_kept(tangents[:-1])))
        return tuple(next(made) if ctx.wanted >> i & 1 else torch.empty(0, dtype=self._dtypes[p]) for i, p in enumerate(self._places))

    def _push(self, ctx, *tangents):
        made = iter(self._tangents(self.op, ctx.saved_tensors[: len(self._inputs)], tangents))
        results = [next(made) if DTYPES[t].is_floating_point else None for t in self.op.output_dtypes]
        return (*results, *([None] * (self._results - self._outputs)))

    def _gradient(self, wanted):
        """The gradients of these inputs as an op of inputs and cotangents, without what is kept."""
        op = self.op.with_options(wrt=[n for i, n in enumerate(self._wrt) if wanted >> i & 1]).vjp
        return op.only(op.outputs[self._outputs:])

    def _tangents(self, op, tensors, tangents):
        moving = [n for n, t in zip(op.inputs, tangents) if t is not None and n in op.differentiable]
        return self._product("jvp", op, moving, tensors, [t for n, t in zip(op.inputs, tangents) if n in moving])

    def _product(self, kind, op, wrt, tensors, directions):
        """A vjp or jvp of an op, without its own outputs; a CustomOp, so there is a next one."""
        key = (kind, op.name, tuple(op.outputs), tuple(wrt))
        if key not in self._products:
            product = getattr(op.with_options(wrt=wrt), kind)
            product = product.only(product.outputs[len(op.outputs):])
            self._products[key] = _custom_op(product, product.name, self._dims)
        results = self._products[key](*tensors, *directions)
        return (results,) if isinstance(results, torch.Tensor) else results
