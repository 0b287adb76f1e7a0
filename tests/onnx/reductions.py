"""Reductions, what runs along one axis, and the norms and losses that are made of them."""

import numpy as np

from elementwise import elementwise, number
from graph import F32, I64, literal
from importer import op


def over(axes, shape):
    """The ranges of the axes of a reduction, r0 in 0..N, … by dimension."""
    return ", ".join(f"r{d} in 0..{shape[d]}" for d in axes)


def reduced(n, x, axes, text, keep=True, kind=None, name=None):
    """text(ranges, element) for what is left of x when axes go."""
    shape = [1 if d in axes else e for d, e in enumerate(x.shape)] if keep else [e for d, e in enumerate(x.shape) if d not in axes]

    def body(*i):
        rest = iter(i)
        at = []
        for d in range(x.rank):
            k = next(rest) if keep or d not in axes else None
            at.append(f"r{d}" if d in axes else k)
        return text(over(axes, x.shape), x(*at))

    return n.define(kind or x.kind, shape, body, name)


REDUCTIONS = {
    "ReduceSum": "sum({r}: {x})",
    "ReduceProd": "prod({r}: {x})",
    "ReduceL1": "sum({r}: abs({x}))",
    "ReduceL2": "sqrt(sum({r}: {x} * {x}))",
    "ReduceSumSquare": "sum({r}: {x} * {x})",
    "ReduceLogSum": "log(sum({r}: {x}))",
    "ReduceMean": "sum({r}: {x}) / {count}",
    "ReduceMax": "max({r}: {x})",
    "ReduceMin": "min({r}: {x})",
    "ReduceLogSumExp": "log(sum({r}: exp({x})))",
}
OF_BOOLS = {"ReduceMax": "any({r}: {x})", "ReduceMin": "all({r}: {x})"}


@op(*REDUCTIONS)
def reduction(n):
    x, axes = n[0], n.ints("axes", 1)
    if not axes:
        if axes is not None and n.get("noop_with_empty_axes", 0) or axes is None and n.get("noop_with_empty_axes", 0):
            return elementwise(
                n,
                {"ReduceL1": "abs({0})", "ReduceL2": "abs({0})", "ReduceSumSquare": "{0} * {0}", "ReduceLogSum": "log({0})"}.get(
                    n.proto.op_type, "{0}"
                ),
                [x],
            )
        axes = range(x.rank)
    axes = sorted(a % x.rank for a in axes)
    formula = (OF_BOOLS if x.kind.is_bool else REDUCTIONS)[n.proto.op_type]
    count = int(np.prod([x.shape[a] for a in axes]))
    if not axes:
        return elementwise(n, "{0}", [x])

    def text(r, e):
        result = formula.format(r=r, x=e, count=count)
        return result if x.kind.is_float or x.kind.is_bool or x.kind.text == "i64" else f"{x.kind.text}({result})"

    return reduced(n, x, axes, text, bool(n.get("keepdims", 1)))


@op("ArgMax", "ArgMin")
def arg(n):
    x, axis, which = n[0], n.axis(n[0].rank, 0), n.proto.op_type.lower()
    keep, last, extent = bool(n.get("keepdims", 1)), n.get("select_last_index", 0), n[0].shape[n.axis(n[0].rank, 0)]
    shape = [1 if d == axis else e for d, e in enumerate(x.shape) if keep or d != axis]

    def body(*i):
        at = list(i)
        at[axis : axis + keep] = [f"{extent - 1}-r0" if last else "r0"]
        found = f"{which}(r0 in 0..{extent}: {x(*at)})"
        return f"{extent - 1} - {found}" if last else found

    return n.define(I64, shape, body)


@op("CumSum", "CumProd")
def cumulative(n):
    x, axis = n[0], int(n.known(1)) % n[0].rank
    fold, shift, extent = {"CumSum": "sum", "CumProd": "prod"}[n.proto.op_type], n.get("exclusive", 0), n[0].shape[int(n.known(1)) % n[0].rank]

    def body(*i):
        k = i[axis]
        span = (f"{k}+1..{extent}" if shift else f"{k}..{extent}") if n.get("reverse", 0) else (f"0..{k}" if shift else f"0..{k}+1")
        text = f"{fold}(r0 in {span}: {x(*i[:axis], 'r0', *i[axis + 1:])})"
        return text if x.kind.is_float else f"{x.kind.text}({text})"

    return n.define(x.kind, x.shape, body)


def softmax_parts(n, x, axes, name="e"):
    m = reduced(n, x, axes, lambda r, e: f"max({r}: {e})", name="m")
    e = elementwise_named(n, "exp({0} - {1})", [x, m], name)
    return e, reduced(n, e, axes, lambda r, t: f"sum({r}: {t})", name="s"), m


def elementwise_named(n, formula, tensors, name, kind=None, **names):
    shape = np.broadcast_shapes(*[t.shape for t in tensors])
    return n.graph.define(kind or tensors[0].kind, shape, lambda *i: formula.format(*[t.spread(i) for t in tensors], **names), name)


def softmax_axes(n, x):
    axis = n.axis(x.rank, -1 if n.version >= 13 else 1)
    return [axis] if n.version >= 13 else list(range(axis, x.rank))  # before version 13 x was made a matrix first


@op("Softmax")
def softmax(n):
    e, s, _ = softmax_parts(n, n[0], softmax_axes(n, n[0]))
    return elementwise(n, "{0} / {1}", [e, s])


@op("LogSoftmax")
def log_softmax(n):
    _, s, m = softmax_parts(n, n[0], softmax_axes(n, n[0]))
    return elementwise(n, "{0} - {1} - log({2})", [n[0], m, s])


@op("Hardmax")
def hardmax(n):
    x, axis = n[0], n.axis(n[0].rank, -1)
    first = n.define(
        I64,
        [1 if d == axis else e for d, e in enumerate(x.shape)],
        lambda *i: f"argmax(r0 in 0..{x.shape[axis]}: {x(*i[:axis], 'r0', *i[axis + 1:])})",
        "first",
    )
    return n.define(
        x.kind,
        x.shape,
        lambda *i: f"if {i[axis]} == {first.spread((*i[:axis], 0, *i[axis + 1:]))} then {literal(1, x.kind)} else {literal(0, x.kind)}",
    )


@op("LpNormalization")
def lp_normalization(n):
    x, axis = n[0], n.axis(n[0].rank, -1)
    text = (lambda r, e: f"sum({r}: abs({e}))") if n.get("p", 2) == 1 else (lambda r, e: f"sqrt(sum({r}: {e} * {e}))")
    return elementwise(n, "if {1} == 0 then 0 else {0} / {1}", [x, reduced(n, x, [axis], text, name="norm")])


def statistics(n, x, axes):
    """Mean and variance in f32 or wider, with dimensions of 1."""
    count = int(np.prod([x.shape[a] for a in axes]))
    wide = x if x.kind.text in ("f32", "f64") else elementwise_named(n, "f32({0})", [x], "wide", F32)
    mean = reduced(n, wide, axes, lambda r, e: f"sum({r}: {e}) / {count}", name="mean")
    square = elementwise_named(n, "({0} - {1})^2", [wide, mean], "d")
    return wide, mean, reduced(n, square, axes, lambda r, e: f"sum({r}: {e}) / {count}", name="var")


def per_channel(n, t, x, axis=1):
    """A tensor with one element for each channel, as one that spreads over x."""
    return n.graph.define(t.kind, [t.shape[0]] + [1] * (x.rank - axis - 1), lambda *i: t(i[0]), t.name)


@op("LayerNormalization")
def layer_normalization(n):
    x, axis = n[0], n.axis(n[0].rank, -1)
    wide, mean, var = statistics(n, x, list(range(axis, x.rank)))
    inverse = elementwise_named(n, f"1 / sqrt({{0}} + {number(n.get('epsilon', 1e-5))})", [var], "inverse")
    y = elementwise(
        n, "({0} - {1}) * {2} * {3} + {4}" if n.has(2) else "({0} - {1}) * {2} * {3}", [wide, mean, inverse, n[1]] + ([n[2]] if n.has(2) else [])
    )
    return y, mean, inverse


@op("RMSNormalization")
def rms_normalization(n):
    x, axis = n[0], n.axis(n[0].rank, -1)
    count = int(np.prod(x.shape[axis:]))
    square = reduced(n, x, list(range(axis, x.rank)), lambda r, e: f"sum({r}: {e} * {e}) / {count}", name="square")
    return elementwise(n, f"{{0}} / sqrt({{1}} + {number(n.get('epsilon', 1e-5))}) * {{2}}", [x, square, n[1]])


@op("InstanceNormalization")
def instance_normalization(n):
    x = n[0]
    _, mean, var = statistics(n, x, list(range(2, x.rank)))
    return elementwise(
        n,
        f"{{3}} * ({{0}} - {{1}}) / sqrt({{2}} + {number(n.get('epsilon', 1e-5))}) + {{4}}",
        [x, mean, var, per_channel(n, n[1], x), per_channel(n, n[2], x)],
    )


@op("GroupNormalization")
def group_normalization(n):
    x, groups, eps = n[0], n.get("num_groups"), number(n.get("epsilon", 1e-5))
    size, rest = x.shape[1] // groups, x.shape[2:]
    ranges = ", ".join([f"r0 in 0..{size}"] + [f"r{d + 1} in 0..{e}" for d, e in enumerate(rest)])
    inside = [f"r{d + 1}" for d in range(len(rest))]
    count = size * int(np.prod(rest))
    mean = n.graph.define(x.kind, (x.shape[0], groups), lambda b, g: f"sum({ranges}: {x(b, f'{g}*{size} + r0', *inside)}) / {count}", "mean")
    var = n.graph.define(
        x.kind, (x.shape[0], groups), lambda b, g: f"sum({ranges}: ({x(b, f'{g}*{size} + r0', *inside)} - {mean(b, g)})^2) / {count}", "var"
    )

    def body(b, c, *i):
        g = f"{c}/{size}"
        of = g if n[1].shape[0] == groups and groups != x.shape[1] else c
        return f"({x(b, c, *i)} - {mean(b, g)}) / sqrt({var(b, g)} + {eps}) * {n[1](of)} + {n[2](of)}"

    return n.define(x.kind, x.shape, body)


@op("MeanVarianceNormalization")
def mean_variance_normalization(n):
    x, axes = n[0], n.ints("axes", default=[0, 2, 3])
    _, mean, var = statistics(n, x, axes)
    return elementwise(n, "({0} - {1}) / (sqrt({2}) + 1e-9)", [x, mean, var])


@op("BatchNormalization")
def batch_normalization(n):
    x, eps = n[0], number(n.get("epsilon", 1e-5))
    scale, bias, mean, var = (per_channel(n, n[k], x) for k in range(1, 5))
    formula = f"{{3}} * ({{0}} - {{1}}) / sqrt({{2}} + {eps}) + {{4}}"
    if not n.get("training_mode", 0):
        return elementwise(n, formula, [x, mean, var, scale, bias])
    _, now, spread = statistics(n, x, [d for d in range(x.rank) if d != 1])
    keep = number(n.get("momentum", 0.9))

    def running(k, t, name):
        return n.graph.define(n[k].kind, n[k].shape, lambda c: f"{n[k](c)} * {keep} + {t(0, c, *[0] * (x.rank - 2))} * (1 - {keep})", name)

    return elementwise(n, formula, [x, now, spread, scale, bias]), running(3, now, "running_mean"), running(4, spread, "running_var")


@op("LRN")
def lrn(n):
    x, size = n[0], n.get("size")
    low = (size - 1) // 2
    a, b, k = number(n.get("alpha", 1e-4) / size), number(n.get("beta", 0.75)), number(n.get("bias", 1.0))
    return n.define(
        x.kind, x.shape, lambda i, c, *s: f"{x(i, c, *s)} / ({k} + {a} * sum(r0 in 0..{size}: {x(i, f'{c} + r0 - {low}', *s, otherwise=0)}^2)) ^ {b}"
    )


def class_loss(n, score, target, weights):
    """What a sample loses: -weight * score of its class, which is 0 for the class that is ignored; and the reduction of all of these."""
    ignored, reduction = n.get("ignore_index", None), n.get("reduction", "mean")
    classes = score.shape[1]

    def part(text):
        return lambda b, *i: f"if i64({target(b, *i)}) == {ignored} then 0 else {text(b, *i)}" if ignored is not None else text(b, *i)

    at = lambda b, *i: f"clamp({target(b, *i)}, 0, {classes - 1})" if ignored is not None and not 0 <= ignored < classes else target(b, *i)
    weight = n.graph.define(score.kind, target.shape, part(lambda b, *i: weights(at(b, *i)) if weights else "1"), "weight")
    loss = n.graph.define(
        score.kind, target.shape, lambda b, *i: f"-{score(b, at(b, *i), *i)} * {weight(b, *i)}", n.name if reduction == "none" else "each"
    )
    if reduction == "none":
        return loss
    axes = list(range(loss.rank))
    total = reduced(n, loss, axes, lambda r, e: f"sum({r}: {e})", keep=False, name="total")
    if reduction == "sum":
        return elementwise(n, "{0}", [total])
    return elementwise(n, "{0} / {1}", [total, reduced(n, weight, axes, lambda r, e: f"sum({r}: {e})", keep=False, name="weights")])


@op("NegativeLogLikelihoodLoss")
def nll(n):
    return class_loss(n, n[0], n[1], n[2])


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(n):
    _, s, m = softmax_parts(n, n[0], [1])
    log_p = elementwise_named(n, "{0} - {1} - log({2})", [n[0], m, s], n.proto.output[1] if n.wants(1) else "log_p")
    return class_loss(n, log_p, n[1], n[2]), log_p
