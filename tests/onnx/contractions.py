"""Products: matrices, einsum, convolutions, attention of matrices that are given."""

import itertools

import numpy as np
import onnx

from graph import KINDS, NotExpressible, kind_of
from importer import dtype_of, op


def narrow(kind, text):
    """Sums of integers are i64."""
    return text if kind.is_float else f"{kind.text}({text})"


def matmul_of(n, a, b, kind=None, name=None, left=str, right=str):
    """NumPy's matmul; left and right are what becomes of the elements."""
    kind = kind or a.kind
    rows, columns = a.rank > 1, b.rank > 1
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *([a.shape[-2]] if rows else []), *([b.shape[-1]] if columns else []))

    def body(*i):
        i = list(i)
        j = [i.pop()] if columns else []
        m = [i.pop()] if rows else []
        ab = [0 if e == 1 else k for e, k in zip(a.shape[:-2], i[len(i) - max(a.rank - 2, 0) :])]
        bb = [0 if e == 1 else k for e, k in zip(b.shape[:-2], i[len(i) - max(b.rank - 2, 0) :])]
        return narrow(kind, f"sum(r0 in 0..{a.shape[-1]}: {left(a(*ab, *m, 'r0'))} * {right(b(*bb, 'r0', *j))})")

    return n.define(kind, shape, body, name)


@op("MatMul")
def matmul(n):
    return matmul_of(n, n[0], n[1])


@op("Gemm")
def gemm(n):
    a, b, c = n[0], n[1], n[2]
    ta, tb, alpha, beta = n.get("transA", 0), n.get("transB", 0), n.get("alpha", 1.0), n.get("beta", 1.0)
    inner = a.shape[0] if ta else a.shape[1]

    def body(i, j):
        product = f"sum(r0 in 0..{inner}: {a('r0', i) if ta else a(i, 'r0')} * {b(j, 'r0') if tb else b('r0', j)})"
        return f"{alpha} * {product}" + (f" + {beta} * {c.spread((i, j))}" if c else "")

    return n.define(a.kind, (a.shape[1] if ta else a.shape[0], b.shape[0] if tb else b.shape[1]), body)


@op("Einsum")
def einsum(n):
    inputs, equation = n.inputs(), n.get("equation").replace(" ", "")
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if "->" not in equation:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    dots = max(t.rank - len(term.replace("...", "")) for t, term in zip(inputs, terms) if "..." in term) if "..." in left else 0
    spell = lambda term, k: list(term.replace("...", "".join(chr(0x100 + d) for d in range(dots - k, dots))))
    terms = [spell(term, t.rank - len(term.replace("...", ""))) for t, term in zip(inputs, terms)]
    right = spell(right, dots)
    extent = {}
    for t, term in zip(inputs, terms):
        for c, e in zip(term, t.shape):
            extent[c] = max(e, extent.get(c, 1))
    gone = [c for c in extent if c not in right]

    def body(*i):
        at = dict(zip(right, i)) | {c: f"r{k}" for k, c in enumerate(gone)}
        product = " * ".join(t(*[at[c] if e != 1 or extent[c] == 1 else 0 for c, e in zip(term, t.shape)]) for t, term in zip(inputs, terms))
        return f"sum({', '.join(f'r{k} in 0..{extent[c]}' for k, c in enumerate(gone))}: {product})" if gone else product

    return n.define(inputs[0].kind, [extent[c] for c in right], body)


@op("Det")
def det(n):
    """The sum over all permutations, each product with the sign of its own."""
    x = n[0]
    size = x.shape[-1]
    if size > 5:
        raise NotExpressible("determinants of more than 5 rows")

    def term(b, order):
        odd = sum(order[i] > order[j] for i in range(size) for j in range(i + 1, size)) % 2
        return f"{'-' if odd else '+'} {' * '.join(x(*b, i, j) for i, j in enumerate(order))}"

    return n.define(x.kind, x.shape[:-2], lambda *b: "0 " + " ".join(term(b, order) for order in itertools.permutations(range(size))))


def zero_point(n, k, channel=None, name=None):
    """The text of a zero point, which counts as 0 where it is left out."""
    t = n[k]
    if t is None:
        return "0"
    return f"i32({t() if not t.rank else t(0) if t.size == 1 and t.rank == 1 else t(channel)})"


@op("MatMulInteger")
def matmul_integer(n):
    return matmul_of(
        n, n[0], n[1], KINDS["int32"], left=lambda e: f"(i32({e}) - {zero_point(n, 2)})", right=lambda e: f"(i32({e}) - {zero_point(n, 3)})"
    )


def limits(kind):
    bits = kind.bits or {"u8": 8, "i32": 32}[kind.text]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.signed and kind.text[0] == "i" else (0, (1 << bits) - 1)


def saturated(kind, text):
    low, high = limits(kind)
    return f"{kind.text}(clamp({text}, {low}, {high}))"


def scalar(t):
    return t() if not t.rank else t(*[0] * t.rank)


def along(t, i, axis, block=0, rank=None):
    """The text of a scale or zero point: one for all, one for each index of an axis, or one for each block of it."""
    if not t.rank or t.size == 1 and t.rank == 1:
        return scalar(t)
    if t.rank == 1:
        return t(i[axis])
    return t(*[f"{k}/{block}" if d == axis and block else k for d, k in enumerate(i)])


@op("QuantizeLinear")
def quantize_linear(n):
    x, scale, zero = n[0], n[1], n[2]
    axis, block = n.axis(x.rank, 1) if x.rank else 0, n.get("block_size", 0)
    kind = zero.kind if zero else kind_of(dtype_of(n.get("output_dtype", 0) or onnx.TensorProto.UINT8))
    point = lambda i: f" + f32({along(zero, i, axis, block)})" if zero else ""
    return n.define(kind, x.shape, lambda *i: saturated(kind, f"round(f32({x(*i)}) / f32({along(scale, i, axis, block)})){point(i)}"))


@op("DequantizeLinear")
def dequantize_linear(n):
    x, scale, zero = n[0], n[1], n[2]
    axis, block = n.axis(x.rank, 1) if x.rank else 0, n.get("block_size", 0)
    value = lambda i: f"(i32({x(*i)}) - i32({along(zero, i, axis, block)}))" if zero else f"i32({x(*i)})"
    return n.define(scale.kind, x.shape, lambda *i: f"{scale.kind.text}(f32({value(i)}) * f32({along(scale, i, axis, block)}))")


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(n):
    x, u8 = n[0], KINDS["uint8"]
    ranges = ", ".join(f"r{d} in 0..{e}" for d, e in enumerate(x.shape))
    at = x(*[f"r{d}" for d in range(x.rank)])
    define = n.graph.define
    low = define(x.kind, (), lambda: f"min(0, min({ranges}: {x(*[f'r{d}' for d in range(x.rank)])}))", "low")
    high = define(x.kind, (), lambda: f"max(0, max({ranges}: {x(*[f'r{d}' for d in range(x.rank)])}))", "high")
    scale = define(x.kind, (), lambda: f"({high()} - {low()}) / 255", n.proto.output[1])
    zero = define(u8, (), lambda: saturated(u8, f"round(-{low()} / {scale()})"), n.proto.output[2])
    return n.define(u8, x.shape, lambda *i: saturated(u8, f"round({x(*i)} / {scale()}) + f32({zero()})")), scale, zero


@op("QLinearMatMul")
def qlinear_matmul(n):
    a, b = n[0], n[3]
    product = matmul_of(
        n, a, b, KINDS["int32"], "product", left=lambda e: f"(i32({e}) - i32({scalar(n[2])}))", right=lambda e: f"(i32({e}) - i32({scalar(n[5])}))"
    )
    kind = n[7].kind
    return n.define(
        kind,
        product.shape,
        lambda *i: saturated(
            kind, f"round(f32({product(*i)}) * (f32({scalar(n[1])}) * f32({scalar(n[4])}) / f32({scalar(n[6])}))) + f32({scalar(n[7])})"
        ),
    )
