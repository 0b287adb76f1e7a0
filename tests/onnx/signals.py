"""Fourier transforms as sums, windows, and what is made of tables of a model."""

import math

import numpy as np

from elementwise import number
from graph import F32, I64, NotExpressible, kind_of, literal
from importer import dtype_of, op

TAU = 6.283185307179586


def turn(product, count, part):
    """cos or sin of 2*pi*product/count in f64; the product of whole numbers is taken modulo count first, so that no digits are lost."""
    return f"{part}(f64({product} % {count}) * {TAU / count!r})"


@op("DFT")
def dft(n):
    x = n[0]
    axis = int(n.known(2, np.array(-2)).reshape(-1)[0]) if n.version >= 20 else n.get("axis", 1)
    axis %= x.rank
    inverse, onesided = n.get("inverse", 0), n.get("onesided", 0)
    count = int(n.known(1, np.array(x.shape[axis])).reshape(-1)[0])
    if inverse and onesided:
        count = count if n.has(1) else 2 * (x.shape[axis] - 1)
    return transformed(n, x, axis, count, inverse, onesided)


def transformed(n, x, axis, count, inverse, onesided, name=None):
    kind, half = x.kind, inverse and onesided
    used = min(x.shape[axis], count // 2 + 1 if half else count)
    shape = list(x.shape)
    shape[axis], shape[-1] = (count // 2 + 1 if onesided and not inverse else count), 1 if half else 2
    sign = "" if inverse else "-"

    def body(*i):
        at = lambda part: f"f64({x(*[('r0' if d == axis else k) for d, k in enumerate(i[:-1])], part)})"
        product = f"r0*{i[axis]}"
        c, s = turn(product, count, "cos"), f"{sign}{turn(product, count, 'sin')}"
        a, b = at(0), at(1) if x.shape[-1] == 2 else None
        real = f"{a} * {c}" + (f" - {b} * ({s})" if b else "")
        if half:  # the other half of the spectrum is this one mirrored
            weight = f"(if r0 == 0 || 2*r0 == {count} then 1 else 2)"
            return f"{kind.text}(sum(r0 in 0..{used}: {weight} * ({real})) / {count})"
        imaginary = f"{a} * ({s})" + (f" + {b} * {c}" if b else "")
        text = f"if {i[-1]} == 0 then sum(r0 in 0..{used}: {real}) else sum(r0 in 0..{used}: {imaginary})"
        return f"{kind.text}(({text}) / {count})" if inverse else f"{kind.text}({text})"

    return n.define(kind, shape, body, name)


@op("STFT")
def stft(n):
    x, step, window = n[0], int(n.known(1).reshape(-1)[0]), n[2]
    length = int(n.known(3).reshape(-1)[0]) if n.has(3) else window.shape[0]
    frames = (x.shape[1] - length) // step + 1
    cut = n.graph.define(
        x.kind,
        (x.shape[0], frames, length, x.shape[2]),
        lambda b, f, t, c: x(b, f"{f}*{step} + {t}", c) + (f" * {window(t)}" if window else ""),
        "cut",
    )
    return transformed(n, cut, 2, length, 0, n.get("onesided", 1))


WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}


@op(*WINDOWS)
def window(n):
    a, b, c = WINDOWS[n.proto.op_type]
    size = int(n.known(0).reshape(-1)[0])
    over = size if n.get("periodic", 1) else size - 1
    return n.define(
        kind_of(dtype_of(n.get("output_datatype", 1))),
        (size,),
        lambda i: f"{a} - {b} * cos({TAU / over!r} * f32({i})) + {c} * cos({2 * TAU / over!r} * f32({i}))",
    )


@op("MelWeightMatrix")
def mel_weight_matrix(n):
    bins, length, rate, low, high = (float(n.known(k).reshape(-1)[0]) for k in range(5))
    mel = lambda hertz: 2595 * math.log10(1 + hertz / 700)
    step = (mel(high) - mel(low)) / (bins + 2)
    edges = n.graph.define(
        I64,
        (int(bins) + 2,),
        lambda k: f"i64(floor({length + 1} * (700 * (10^((f32({k}) * {step!r} + {mel(low)!r}) / 2595) - 1)) / {rate}))",
        "edges",
    )

    def body(i, k):
        left, middle, right = edges(k), edges(f"{k}+1"), edges(f"{k}+2")
        rising = f"if {middle} == {left} then (if {i} == {middle} then 1 else 0) else if {left} <= {i} && {i} <= {middle} then f32({i} - {left}) / f32({middle} - {left})"
        return f"{rising} else if {middle} < {i} && {i} < {right} then f32({right} - {i}) / f32({right} - {middle}) else 0"

    return n.define(F32, (int(length) // 2 + 1, int(bins)), body)


@op("TreeEnsemble")
def tree_ensemble(n):
    """Trees as nested conditions; each target sums the weights of the leaves that are its own."""
    x, a = n[0], n.attributes
    from onnx import numpy_helper

    splits, weights, modes = (numpy_helper.to_array(a[k]) for k in ("nodes_splits", "leaf_weights", "nodes_modes"))
    if any(m > 5 for m in modes) or n.get("post_transform", 0) or n.get("aggregate_function", 1) != 1:
        raise NotExpressible("TreeEnsemble with sets or a transform")
    signs = ["<=", "<", ">=", ">", "==", "!="]

    def tree(node, leaf, row, target):
        if leaf:
            return f"if {target} == {a['leaf_targetids'][node]} then {literal(weights[node], x.kind)} else 0"
        test = f"{x(row, a['nodes_featureids'][node])} {signs[modes[node]]} {number(splits[node])}"
        return f"if {test} then ({tree(a['nodes_truenodeids'][node], a['nodes_trueleafs'][node], row, target)}) else {tree(a['nodes_falsenodeids'][node], a['nodes_falseleafs'][node], row, target)}"

    return n.define(x.kind, (x.shape[0], n.get("n_targets")), lambda row, target: " + ".join(f"({tree(r, 0, row, target)})" for r in a["tree_roots"]))
