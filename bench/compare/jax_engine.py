"""JAX: the ops from primitives under jax.jit ("jax"), under jax.checkpoint as well ("jax-remat"), and those that
jax.nn or jax.lax has ("jax-native")."""
import importlib
import re

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax import lax

from ops import ADAM, EPS, SIGMA2, SUITE
from worker import Skip, Worker, clock


def jax_ops():
    if SUITE:
        return importlib.import_module(f"{SUITE}.in_jax").ops()

    stop = jax.lax.stop_gradient

    def gelu(x):
        return 0.5 * x * (1 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def sigmoid(x):
        return 1 / (1 + jnp.exp(-x))

    def softplus(x):
        return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))

    def softmax(x):
        e = jnp.exp(x - stop(jnp.max(x, -1, keepdims=True)))
        return e / jnp.sum(e, -1, keepdims=True)

    def batch_norm(x, gamma, beta):
        mu = jnp.mean(x, (0, 2, 3), keepdims=True)
        var = jnp.mean((x - mu) ** 2, (0, 2, 3), keepdims=True)
        return (x - mu) / jnp.sqrt(var + EPS) * gamma[None, :, None, None] + beta[None, :, None, None]

    def layer_norm(x, gamma, beta):
        mu = jnp.mean(x, -1, keepdims=True)
        var = jnp.mean((x - mu) ** 2, -1, keepdims=True)
        return (x - mu) / jnp.sqrt(var + EPS) * gamma + beta

    def rms_norm(x, gamma):
        return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * gamma

    def group_norm(x, gamma, beta):
        g = x.reshape(16, 8, 8, 32, 32)
        mu = jnp.mean(g, (2, 3, 4), keepdims=True)
        var = jnp.mean((g - mu) ** 2, (2, 3, 4), keepdims=True)
        y = ((g - mu) / jnp.sqrt(var + EPS)).reshape(x.shape)
        return y * gamma[None, :, None, None] + beta[None, :, None, None]

    def cross_entropy(x, labels):
        m = stop(jnp.max(x, -1, keepdims=True))
        lse = jnp.log(jnp.sum(jnp.exp(x - m), -1)) + m[:, 0]
        return lse - jnp.take_along_axis(x, labels[:, None], 1)[:, 0]

    def attention(q, k, v):
        return softmax(q @ k.swapaxes(-1, -2) * 0.125) @ v

    def lstm_cell(x, h, c, wx, wh, bias):
        z = x @ wx.T + h @ wh.T + bias
        i, f, g, o = jnp.split(z, 4, -1)
        c1 = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        return sigmoid(o) * jnp.tanh(c1), c1

    def lstm_sequence(x, h0, c0, wx, wh, bias):
        def step(hc, xt):
            h, c = lstm_cell(xt, *hc, wx, wh, bias)
            return (h, c), h
        return jax.lax.scan(step, (h0, c0), x)[1]

    def taps(x):
        h, w = x.shape[-2:]
        p = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(1, 1), (1, 1)])
        return [p[..., i:i + h, j:j + w] for i in range(3) for j in range(3)]

    def conv3x3(x, w, b):
        cols = jnp.stack(taps(x), 2).reshape(8, 32 * 9, 56 * 56)
        y = w.reshape(32, 32 * 9) @ cols + b[:, None]
        return jnp.maximum(y, 0).reshape(8, 32, 56, 56)

    def depthwise(x, w):
        w = w.reshape(64, 9)
        return sum(t * w[None, :, i, None, None] for i, t in enumerate(taps(x)))

    def bilateral(x):
        num = den = 0
        for t in taps(x):
            w = jnp.exp(-(t - x) ** 2 / (2 * SIGMA2))
            num, den = num + w * t, den + w
        return num / den

    def huber(x, t):
        d = x - t
        a = jnp.abs(d)
        return jnp.where(a < 1, 0.5 * d * d, a - 0.5)

    def adam(p, g, m, v):
        m = ADAM["b1"] * m + (1 - ADAM["b1"]) * g
        v = ADAM["b2"] * v + (1 - ADAM["b2"]) * g * g
        mh, vh = m / (1 - ADAM["b1"] ** ADAM["t"]), v / (1 - ADAM["b2"] ** ADAM["t"])
        return p - ADAM["lr"] * mh / (jnp.sqrt(vh) + ADAM["eps"]), m, v

    def rope(x, cos, sin):
        a, b = x[..., :32], x[..., 32:]
        cos, sin = cos[None, :, None, :], sin[None, :, None, :]
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    chain = lambda a, b, d: (a @ b.swapaxes(-1, -2)) @ d.swapaxes(-1, -2)
    return {
        "tanh": jnp.tanh,
        "gelu_tanh_bias": lambda x, b: gelu(x + b),
        "silu": lambda x: x * sigmoid(x),
        "mish": lambda x: x * jnp.tanh(softplus(x)),
        "softplus": softplus,
        "batch_norm_train": batch_norm, "layer_norm": layer_norm, "rms_norm": rms_norm, "group_norm": group_norm,
        "softmax": softmax, "cross_entropy": cross_entropy, "attention": attention,
        "lstm_cell": lstm_cell, "lstm_sequence": lstm_sequence,
        "dense_gelu": lambda x, w, b: gelu(x @ w + b),
        "matmul_chain_512": chain, "matmul_chain_8x8_b1024": chain,
        "conv3x3_bias_relu": conv3x3, "depthwise_conv3x3": depthwise,
        "maxpool2x2": lambda x: x.reshape(16, 64, 28, 2, 28, 2).max((3, 5)),
        "normalize_bgr": lambda x, mean, scale: (x[:, ::-1] - mean[:, None, None]) * scale[:, None, None],
        "embedding_sum": lambda table, ids: table[ids].sum(1),
        "huber": huber,
        "bce_with_logits": lambda x, t: jnp.maximum(x, 0) - x * t + jnp.log1p(jnp.exp(-jnp.abs(x))),
        "box_blur3x3": lambda x: sum(taps(x)) * (1 / 9),
        "bilateral3x3": bilateral,
        "adam_step": adam, "rope": rope,
        "swiglu": lambda a, b: a * sigmoid(a) * b,
        "mlp2": lambda x, w1, b1, w2, b2: gelu(x @ w1 + b1) @ w2 + b2,
    }


def jax_native_ops():
    dn = ("NCHW", "OIHW", "NCHW")

    def conv3x3(x, w, b):
        return jnp.maximum(lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=dn) + b[:, None, None], 0)

    def depthwise(x, w):
        return lax.conv_general_dilated(x, w[:, None], (1, 1), "SAME", dimension_numbers=dn, feature_group_count=64)

    def attention(q, k, v):  # jax.nn wants [B,T,H,D]
        t = lambda a: a.swapaxes(1, 2)
        return t(jax.nn.dot_product_attention(t(q), t(k), t(v)))

    def layer_norm(x, gamma, beta):
        return jax.nn.standardize(x, -1, epsilon=EPS) * gamma + beta

    return {
        "gelu_tanh_bias": lambda x, b: jax.nn.gelu(x + b, approximate=True),
        "silu": jax.nn.silu, "mish": jax.nn.mish, "softplus": jax.nn.softplus,
        "softmax": jax.nn.softmax,
        "layer_norm": layer_norm,
        "cross_entropy": lambda x, labels: -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)[:, 0],
        "attention": attention,
        "conv3x3_bias_relu": conv3x3, "depthwise_conv3x3": depthwise,
        "maxpool2x2": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        "box_blur3x3": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3), (1, 1, 1), "SAME") * (1 / 9),
    }


class JaxWorker(Worker):
    def __init__(self, peer):
        self.native, self.remat = peer == "jax-native", peer == "jax-remat"
        self.fns = jax_native_ops() if self.native else jax_ops()
        jax.block_until_ready(jax.jit(lambda x: x + 1)(np.ones(8, np.float32)))  # a process's first compile is slow
        self.version = jax.__version__

    def load(self, op, ins, cts):
        if op.name not in self.fns:
            raise Skip("no library op")
        if self.remat and not op.diff:
            raise Skip("no gradient")
        self.op, fn = op, self.fns[op.name]
        if self.remat:  # keep the inputs only, compute the rest again in backward
            fn = jax.checkpoint(fn)
        names = list(op.inputs)
        self.args = [jax.device_put(ins[n]) for n in names]
        self.dys = [jax.device_put(c) for c in cts.values()]
        self.described = {"compile_s": {}, "kernels": {}, "saved": {}, "kernel_kinds": {}}
        donate = (0, 2, 3) if op.name == "adam_step" else ()  # p, m, v: in place
        inferring = self.compile("infer", "infer", fn, *self.args, donate_argnums=donate)

        def infer():
            y = jax.block_until_ready(inferring(*self.args))
            if donate:
                self.args = [y[0], self.args[1], y[1], y[2]]
            return y
        self.infer = infer
        self.forward = self.backward = self.total = None
        if op.diff:
            self.load_gradient(op, fn, [names.index(d) for d in op.diff])
        y = self.infer()
        self.first = [np.array(t, copy=True) for t in (y if len(op.outs) > 1 else [y])]
        return self.described

    def compile(self, phase, counted, f, *args, **options):
        start = clock()
        compiled = jax.jit(f, **options).lower(*args).compile()
        seconds = self.described["compile_s"]
        seconds[counted] = seconds.get(counted, 0) + clock() - start
        kinds = hlo_kernels(compiled.as_text())
        self.described["kernel_kinds"][phase] = kinds
        self.described["kernels"][phase] = sum(kinds.values())
        return compiled

    def load_gradient(self, op, fn, at):
        """Forward and backward as two calls, and as one."""
        many, n_y, wait = len(op.outs) > 1, len(op.outs), jax.block_until_ready
        ct = (lambda d: tuple(d)) if many else (lambda d: d[0])

        def vjp(*args):
            def f(*d):
                a = list(args)
                for i, x in zip(at, d):
                    a[i] = x
                return fn(*a)
            return jax.vjp(f, *[args[i] for i in at])

        start = clock()
        closed, shape = jax.make_jaxpr(vjp, return_shape=True)(*self.args)
        tree = jax.tree_util.tree_structure(shape)
        returned, sources, self.described["saved"] = residual_sources(closed.jaxpr, n_y)
        self.described["compile_s"]["train"] = clock() - start
        evaluate = jax.extend.core.jaxpr_as_fun(closed)

        def forward(*args):
            flat = evaluate(*args)
            return [flat[k] for k in returned]

        def residuals(out):
            pick = {"literal": lambda v: v, "input": lambda i: self.args[i], "output": lambda i: out[i]}
            return [pick[kind](what) for kind, what in sources]

        def pull(res, *dys):
            _, f = jax.tree_util.tree_unflatten(tree, list(dys) + list(res))
            return f(ct(dys))

        def total(args, dys):
            y, f = vjp(*args)
            return y, f(ct(dys))

        split_forward = self.compile("fwd", "train", forward, *self.args)
        split_backward = self.compile("bwd", "train", pull, residuals(wait(split_forward(*self.args))), *self.dys)
        both = self.compile("total", "total", total, self.args, self.dys)
        self.forward = lambda: wait(split_forward(*self.args))
        self.backward = lambda out: wait(split_backward(residuals(out), *self.dys))
        self.total = lambda: wait(both(self.args, self.dys))

    def check(self):
        if not self.op.diff:
            return self.first, []
        g, g1 = self.backward(self.forward()), self.total()[1]
        for a, b in zip(g, g1):  # the split and the one-call form are the same gradient
            a, b = np.asarray(a), np.asarray(b)
            assert np.abs(a - b).max() <= 1e-3 * max(1e-6, np.abs(b).max()), "split and one-call gradients differ"
        return self.first, list(g)

    def drop(self):
        self.args = self.dys = self.infer = self.forward = self.backward = self.total = self.first = None
        jax.clear_caches()


def residual_sources(jaxpr, n_y):
    """Of a jaxpr that returns n_y results and then the residuals of its vjp: which of its outputs a forward must return,
    where each residual comes from, and the bytes kept. A residual that is an input, or the output, or another residual,
    is not returned twice: a jitted function would copy it."""
    input_at = {id(v): i for i, v in enumerate(jaxpr.invars)}
    returned, returned_at, sources, counted = [], {}, [], set()
    saved = {"inputs": 0, "outputs": 0, "extra": 0}
    for k, v in enumerate(jaxpr.outvars):
        is_residual = k >= n_y
        if hasattr(v, "val"):
            source, kind = ("literal", v.val), None
        elif is_residual and id(v) in input_at:
            source, kind = ("input", input_at[id(v)]), "inputs"
        else:
            if id(v) not in returned_at:
                returned_at[id(v)] = len(returned)
                returned.append(k)
            source = ("output", returned_at[id(v)])
            kind = "outputs" if returned_at[id(v)] < n_y else "extra"
        if is_residual:
            sources.append(source)
            if kind and id(v) not in counted:
                counted.add(id(v))
                saved[kind] += v.aval.size * v.aval.dtype.itemsize
    return returned, sources, saved


def hlo_kernels(text):
    """Instructions of the entry computation that do work, by opcode."""
    body = text[text.index("\nENTRY "):]
    body = body[:body.index("\n}")]
    kinds = {}
    for line in body.splitlines()[2:]:
        m = re.search(r" = (?:\([^=]*?\)|\S+) ([a-z][a-z0-9-]*)\(", line)
        if m and m[1] not in ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"):
            kinds[m[1]] = kinds.get(m[1], 0) + 1
    return kinds
