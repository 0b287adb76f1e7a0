"""The op suite: shapes, and the least work that each op needs: bytes moved, flops, exponentials.

Formulas are in the files of the engines (jax_engine.py, torch_engine.py, ../peer_ops/*.xh, eigen_*.cpp, halide_*.cpp);
data.py makes the numbers. Nothing but the standard library is imported: the report needs no more.

    python bench/compare/ops.py        prints the table
"""
import importlib.util
import os
from dataclasses import dataclass, field
from math import prod

import annotated

M = 1024 * 1024
EPS = 1e-5
ADAM = dict(lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, t=10)
SIGMA2 = 0.5  # bilateral: 2 sigma_r^2 = 1
F = 4         # bytes of a float32


@dataclass
class Op:
    """fwd, stash, bwd: bytes, each tensor moved once. flops: of the contractions only, 2 per multiply-add. exps:
    evaluations of exp, log, tanh and the like; sharing and algebra are taken as far as we know how."""
    name: str
    inputs: dict      # name -> shape, or (shape, kind): see data.py
    diff: tuple       # names of the inputs that a gradient is asked for
    outs: dict        # name -> shape
    fwd: int          # inference: inputs read, outputs written
    stash: int        # the forward of training writes this much more, the backward reads it back
    stash_what: str   # what is best kept ('' = nothing beyond inputs and outputs)
    bwd: int          # backward: cotangents, needed inputs and outputs and stash read, gradients written
    flops: int = 0
    bwd_flops: int = 0
    exps: int = 0
    bwd_exps: int = 0
    tags: set = field(default_factory=set)  # "in place": outputs overwrite inputs;
                                            # "native_compile": compiling torch's own op is more than its primitives

    def footprint(self, train):
        """Bytes of the distinct tensors that a phase touches: what must stay in a cache for a repeat to hit it."""
        if "in place" in self.tags:
            return sum(F * size(s) for s in self.inputs.values())
        if not train:
            return self.fwd
        return F * (sum(map(size, self.inputs.values())) + 2 * sum(map(size, self.outs.values()))
                    + sum(size(self.inputs[d]) for d in self.diff)) + self.stash


def shape_of(spec):
    return spec[0] if spec and isinstance(spec[0], tuple) else spec


def size(spec):
    return prod(shape_of(spec))


def activations():
    n = 16 * M
    yield Op("tanh", {"x": (n,)}, ("x",), {"y": (n,)}, F * 2 * n, 0, "", F * 3 * n, exps=n)  # y' = 1 - y^2
    s, c = (4096, 1024), 1024
    n = size(s)
    yield Op("gelu_tanh_bias", {"x": s, "b": (c,)}, ("x", "b"), {"y": s},
             F * (2 * n + c), 0, "", F * (3 * n + 2 * c), exps=n, bwd_exps=n)
    n = 8 * M
    for name, exps in (("silu", 1), ("mish", 1), ("softplus", 2)):  # tanh(log(1 + e^x)) needs e^x alone
        yield Op(name, {"x": (n,)}, ("x",), {"y": (n,)}, F * 2 * n, 0, "", F * 3 * n, exps=exps * n, bwd_exps=n)
    s = (2048, 1024)
    n = size(s)
    yield Op("swiglu", {"a": s, "b": s}, ("a", "b"), {"y": s}, F * 3 * n, 0, "", F * 5 * n, exps=n, bwd_exps=n)
    s = (4, 256, 8, 64)
    n, table = size(s), 256 * 32
    yield Op("rope", {"x": s, "cos": ((256, 32), "cos"), "sin": ((256, 32), "sin")}, ("x",), {"y": s},
             F * (2 * n + 2 * table), 0, "", F * (2 * n + 2 * table))


def normalizations():
    s, c = (32, 64, 56, 56), 64
    n = size(s)
    yield Op("batch_norm_train", {"x": s, "gamma": (c,), "beta": (c,)}, ("x", "gamma", "beta"), {"y": s},
             F * (2 * n + 2 * c), F * 2 * c, "mean, rstd [64]", F * (3 * n + 5 * c))
    r, k = 4096, 1024
    n = r * k
    yield Op("layer_norm", {"x": (r, k), "gamma": (k,), "beta": (k,)}, ("x", "gamma", "beta"), {"y": (r, k)},
             F * (2 * n + 2 * k), F * 2 * r, "mean, rstd [4096]", F * (3 * n + 2 * r + 3 * k))
    yield Op("rms_norm", {"x": (r, k), "gamma": (k,)}, ("x", "gamma"), {"y": (r, k)},
             F * (2 * n + k), F * r, "rrms [4096]", F * (3 * n + r + 2 * k))
    s, c, g = (16, 64, 32, 32), 64, 16 * 8
    m = size(s)
    yield Op("group_norm", {"x": s, "gamma": (c,), "beta": (c,)}, ("x", "gamma", "beta"), {"y": s},
             F * (2 * m + 2 * c), F * 2 * g, "mean, rstd [16,8]", F * (3 * m + 2 * g + 3 * c))
    yield Op("softmax", {"x": (r, k)}, ("x",), {"y": (r, k)}, F * 2 * n, 0, "", F * 3 * n, exps=n)


def losses():
    r = 4096
    n = r * 1000
    yield Op("cross_entropy", {"x": (r, 1000), "labels": ((r,), 1000)}, ("x",), {"y": (r,)},
             F * (n + 2 * r), F * r, "logsumexp [4096]", F * (2 * n + 3 * r), exps=n, bwd_exps=n)
    n = 8 * M
    yield Op("huber", {"x": (n,), "t": (n,)}, ("x",), {"y": (n,)}, F * 3 * n, 0, "", F * 4 * n)
    yield Op("bce_with_logits", {"x": (n,), "t": ((n,), "unit")}, ("x",), {"y": (n,)},
             F * 3 * n, 0, "", F * 4 * n, exps=2 * n, bwd_exps=n)
    yield Op("adam_step", {"p": (n,), "g": (n,), "m": (n,), "v": ((n,), "square")}, (),
             {"p1": (n,), "m1": (n,), "v1": (n,)}, F * 7 * n, 0, "", 0, tags={"in place"})


def networks():
    b, h, t, d = 4, 8, 256, 64
    s, n, p = (b, h, t, d), b * h * t * d, b * h * t * t
    yield Op("attention", {"q": s, "k": s, "v": s}, ("q", "k", "v"), {"y": s}, F * 4 * n, F * p,
             "probabilities [4,8,256,256]", F * (7 * n + p), 4 * p * d, 8 * p * d, exps=p)
    b, h = 64, 256
    bh, w = b * h, 4 * h * h
    yield Op("lstm_cell", {"x": (b, h), "h": (b, h), "c": (b, h), "wx": ((4 * h, h), h ** -0.5),
                           "wh": ((4 * h, h), h ** -0.5), "bias": (4 * h,)},
             ("x", "h", "c", "wx", "wh", "bias"), {"h1": (b, h), "c1": (b, h)},
             F * (5 * bh + 2 * w + 4 * h), F * 4 * bh, "gates [64,1024]",
             F * (13 * bh + 4 * w + 4 * h), 4 * b * w, 8 * b * w, exps=5 * bh)
    t, b, h = 32, 32, 128
    bh, w = b * h, 4 * h * h
    yield Op("lstm_sequence", {"x": (t, b, h), "h0": (b, h), "c0": (b, h), "wx": ((4 * h, h), h ** -0.5),
                               "wh": ((4 * h, h), h ** -0.5), "bias": (4 * h,)},
             ("x", "h0", "c0", "wx", "wh", "bias"), {"hs": (t, b, h)},
             F * (2 * t * bh + 2 * bh + 2 * w + 4 * h), F * 5 * t * bh, "gates, c [32,32,5*128]",
             F * (9 * t * bh + 4 * bh + 4 * w + 4 * h), t * 4 * b * w, t * 8 * b * w, exps=5 * t * bh)
    m, k, o = 512, 1024, 1024
    yield Op("dense_gelu", {"x": (m, k), "w": ((k, o), k ** -0.5), "b": (o,)}, ("x", "w", "b"), {"y": (m, o)},
             F * (m * k + k * o + o + m * o), F * m * o, "pre-activation [512,1024]",
             F * (2 * m * o + 2 * (m * k + k * o) + o), 2 * m * k * o, 4 * m * k * o, exps=m * o, bwd_exps=m * o)
    m, k, h = 256, 512, 2048
    yield Op("mlp2", {"x": (m, k), "w1": ((k, h), k ** -0.5), "b1": (h,), "w2": ((h, k), h ** -0.5), "b2": (k,)},
             ("x", "w1", "b1", "w2", "b2"), {"y": (m, k)}, F * (2 * m * k + 2 * k * h + h + k), F * m * h,
             "pre-activation [256,2048]", F * (m * k + m * h + 2 * (m * k + 2 * k * h) + h + k),
             4 * m * k * h, 8 * m * k * h, exps=m * h, bwd_exps=m * h)
    for name, lead, q in (("matmul_chain_512", (), 512), ("matmul_chain_8x8_b1024", (1024,), 8)):
        s = lead + (q, q)
        n, product = size(s), 2 * size(s) * q
        stash = n if q > 64 else 0  # at 8x8 the product is cheaper to compute again than to move
        yield Op(name, {"a": (s, q ** -0.5), "b": s, "d": (s, q ** -0.5)}, ("a", "b", "d"), {"y": s},
                 F * 4 * n, F * stash, "A.B^T" if stash else "", F * (7 * n + stash),
                 2 * product, (4 if stash else 5) * product)


def images():
    s, c = (8, 32, 56, 56), 32
    n, w = size(s), c * c * 9
    yield Op("conv3x3_bias_relu", {"x": s, "w": ((c, c, 3, 3), (9 * c) ** -0.5), "b": (c,)}, ("x", "w", "b"), {"y": s},
             F * (2 * n + w + c), 0, "", F * (4 * n + 2 * w + c), 2 * n * c * 9, 4 * n * c * 9, tags={"native_compile"})
    s, c = (8, 64, 56, 56), 64
    n = size(s)
    yield Op("depthwise_conv3x3", {"x": s, "w": ((c, 3, 3), 1 / 3)}, ("x", "w"), {"y": s},
             F * (2 * n + 9 * c), 0, "", F * (3 * n + 18 * c), 2 * n * 9, 4 * n * 9, tags={"native_compile"})
    s, o = (16, 64, 56, 56), (16, 64, 28, 28)
    n = size(s)
    yield Op("maxpool2x2", {"x": s}, ("x",), {"y": o}, F * (n + n // 4), n // 4, "argmax, 1 byte each",
             F * (n // 4 + n) + n // 4, tags={"native_compile"})
    s = (32, 3, 224, 224)
    n = size(s)
    yield Op("normalize_bgr", {"x": s, "mean": (3,), "scale": (3,)}, ("x",), {"y": s}, F * 2 * n, 0, "", F * 2 * n)
    v, d, b, l = 10000, 128, 1024, 20
    rows = round(v * (1 - (1 - 1 / v) ** (b * l)))  # distinct ids, as expected of uniform ones
    yield Op("embedding_sum", {"table": (v, d), "ids": ((b, l), v)}, ("table",), {"y": (b, d)},
             F * (rows * d + b * l + b * d), 0, "", F * (b * d + b * l + v * d), tags={"native_compile"})
    s = (8, 1024, 1024)
    n = size(s)
    yield Op("box_blur3x3", {"x": s}, ("x",), {"y": s}, F * 2 * n, 0, "", F * 2 * n, tags={"native_compile"})
    # Weights are symmetric: one exponential for each of the 4n pairs of neighbours.
    yield Op("bilateral3x3", {"x": s}, ("x",), {"y": s}, F * 2 * n, 0, "", F * 3 * n, exps=4 * n, bwd_exps=4 * n)


# The name of a folder whose ops are measured instead: one with its own ops.py, or one beside this file with SUITE.xh.
SUITE = os.environ.get("COMPARE_SUITE")
if SUITE and importlib.util.find_spec(f"{SUITE}.ops"):
    OPS = importlib.import_module(f"{SUITE}.ops").suite(Op)
elif SUITE:
    OPS = annotated.suite(SUITE, Op)
else:
    OPS = {o.name: o for group in (activations, normalizations, losses, networks, images) for o in group()}

if __name__ == "__main__":
    for op in OPS.values():
        print(f"{op.name:24} fwd {op.fwd / 1e6:8.2f} MB  bwd {op.bwd / 1e6:8.2f} MB  stash {op.stash / 1e6:7.3f} MB {op.stash_what:30}"
              f" {op.flops / 1e9:6.3f} / {op.bwd_flops / 1e9:6.3f} GFLOP {op.exps / 1e6:6.2f} / {op.bwd_exps / 1e6:6.2f} M exp")
