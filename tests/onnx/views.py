"""Ops that only move elements: index expressions. Those that write where data say are loops of a `prog`."""

import numpy as np

from graph import NotExpressible, kind_of, literal
from importer import dtype_of, op


def strides(shape):
    return [int(np.prod(shape[d + 1 :], dtype=np.int64)) for d in range(len(shape))]


def flat(index, shape):
    """The text of the position of an element among all of a tensor."""
    return " + ".join(f"{i}*{s}" if s != 1 else i for i, s in zip(index, strides(shape))) or "0"


def unflat(position, shape):
    """The index of the element at a position."""
    return [f"({position}) / {s} % {n}" if d else f"({position}) / {s}" for d, (s, n) in enumerate(zip(strides(shape), shape))]


def reshaped(n, x, shape, name=None):
    if x.size == 0:
        return n.define(x.kind, shape, lambda *i: literal(0, x.kind), name)
    return n.define(x.kind, shape, lambda *i: x(*unflat(flat(i, shape), x.shape)), name)


@op("Reshape")
def reshape(n):
    x, wanted = n[0], n.ints("shape", 1)
    if not n.get("allowzero", 0):
        wanted = [x.shape[d] if e == 0 else e for d, e in enumerate(wanted)]
    rest = int(np.prod([e for e in wanted if e != -1], dtype=np.int64))
    return reshaped(n, x, [x.size // rest if e == -1 else e for e in wanted])


@op("Flatten")
def flatten(n):
    x, axis = n[0], n.axis(n[0].rank, 1)
    return reshaped(n, x, (int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:]))))


@op("Squeeze")
def squeeze(n):
    x = n[0]
    axes = n.ints("axes", 1)
    gone = {a % x.rank for a in axes} if axes is not None else {d for d, e in enumerate(x.shape) if e == 1}
    kept = [d for d in range(x.rank) if d not in gone]

    def body(*i):
        at = dict(zip(kept, i))
        return x(*[at.get(d, 0) for d in range(x.rank)])

    return n.define(x.kind, [x.shape[d] for d in kept], body)


@op("Unsqueeze")
def unsqueeze(n):
    x, axes = n[0], n.ints("axes", 1)
    rank = x.rank + len(axes)
    new = {a % rank for a in axes}
    shape = iter(x.shape)
    return n.define(x.kind, [1 if d in new else next(shape) for d in range(rank)], lambda *i: x(*[a for d, a in enumerate(i) if d not in new]))


@op("Transpose")
def transpose(n):
    x = n[0]
    perm = n.ints("perm", default=list(reversed(range(x.rank))))
    return n.define(x.kind, [x.shape[p] for p in perm], lambda *i: x(*[i[perm.index(d)] for d in range(x.rank)]))


@op("Expand")
def expand(n):
    x = n[0]
    return n.define(x.kind, np.broadcast_shapes(x.shape, tuple(n.ints("shape", 1))), lambda *i: x.spread(i))


@op("Tile")
def tile(n):
    x, repeats = n[0], n.ints("repeats", 1)
    return n.define(x.kind, [e * r for e, r in zip(x.shape, repeats)], lambda *i: x(*[f"{a} % {e}" for a, e in zip(i, x.shape)]))


@op("Concat")
def concat(n):
    return joined(n, n.inputs(), n.axis(n[0].rank))


def joined(n, parts, axis, name=None):
    parts = [p for p in parts if p.size] or parts[:1]
    shape = list(parts[0].shape)
    shape[axis] = sum(p.shape[axis] for p in parts)

    def body(*i):
        text, begin = "", 0
        for k, p in enumerate(parts):
            read = p(*i[:axis], f"{i[axis]}-{begin}" if begin else i[axis], *i[axis + 1 :])
            begin += p.shape[axis]
            text += f"if {i[axis]} < {begin} then {read} else " if k < len(parts) - 1 else read
        return text

    return n.define(parts[0].kind, shape, body, name)


@op("Split")
def split(n):
    x, axis = n[0], n.axis(n[0].rank, 0)
    sizes = n.ints("split", 1)
    if sizes is None:
        count = n.get("num_outputs", len(n.proto.output))
        size = -(-x.shape[axis] // count)
        sizes = [min(size, x.shape[axis] - k * size) for k in range(count)]
    results, begin = [], 0
    for size, name in zip(sizes, n.proto.output):
        shape = list(x.shape)
        shape[axis] = size
        results.append(n.define(x.kind, shape, lambda *i, b=begin: x(*i[:axis], f"{i[axis]}+{b}" if b else i[axis], *i[axis + 1 :]), name))
        begin += size
    return results


@op("Slice")
def slice_(n):
    x = n[0]
    starts, ends = n.ints("starts", 1), n.ints("ends", 2)
    axes, steps = n.ints("axes", 3, list(range(len(starts)))), n.ints("steps", 4, [1] * len(starts))
    shape, at = list(x.shape), {}
    for a, b, e, s in zip(axes, starts, ends, steps):
        a %= x.rank
        begin, end, step = slice(b, e if e >= 0 or e < -x.shape[a] - 1 or s > 0 else e, s).indices(x.shape[a])
        shape[a], at[a] = len(range(begin, end, step)), (begin, step)
    return n.define(
        x.kind,
        shape,
        lambda *i: (
            x(*[f"{at[d][0]} + {at[d][1]}*{k}" if d in at else k for d, k in enumerate(i)]) if x.size and np.prod(shape) else literal(0, x.kind)
        ),
    )


@op("CenterCropPad")
def center_crop_pad(n):
    x, target = n[0], [int(v) for v in n.known(1)]
    axes = [a % x.rank for a in n.ints("axes", default=range(x.rank))]
    shape, shift = list(x.shape), [0] * x.rank
    for a, e in zip(axes, target):
        shift[a] = (x.shape[a] - e) // 2 if e < x.shape[a] else -((e - x.shape[a]) // 2)
        shape[a] = e
    return n.define(x.kind, shape, lambda *i: x(*[f"{a} + {s}" for a, s in zip(i, shift)], otherwise=0))


@op("Pad")
def pad(n):
    x, mode = n[0], n.get("mode", "constant")
    pads, axes = n.ints("pads", 1), n.ints("axes", 3, list(range(n[0].rank)))
    before, after = [0] * x.rank, [0] * x.rank
    for k, a in enumerate(axes):
        before[a], after[a] = pads[k], pads[k + len(axes)]
    shape = [b + e + a for b, e, a in zip(before, x.shape, after)]

    def source(i, b, e):
        k = f"{i} - {b}" if b else i
        if mode == "edge":
            return f"clamp({k}, 0, {e - 1})"
        if mode == "wrap":
            return f"({k}) % {e}"
        period = max(2 * (e - 1), 1)
        return f"(if ({k}) % {period} < {e} then ({k}) % {period} else {period} - ({k}) % {period})"  # reflect

    def body(*i):
        if mode == "constant":
            value = n[2](*[0] * n[2].rank) if n.has(2) else literal(n.get("value", 0), x.kind)
            return x(*[f"{a} - {b}" if b else a for a, b in zip(i, before)], otherwise=value)
        return x(*[source(a, b, e) if s != e else a for a, b, e, s in zip(i, before, x.shape, shape)])

    return n.define(x.kind, shape, body)


@op("DepthToSpace")
def depth_to_space(n):
    x, s = n[0], n.get("blocksize")
    b, c, h, w = x.shape
    inner = c // (s * s)
    channel = (
        f"({{i}} % {s} * {s} + {{j}} % {s}) * {inner} + {{c}}"
        if n.get("mode", "DCR") == "DCR"
        else f"({{c}} * {s} + {{i}} % {s}) * {s} + {{j}} % {s}"
    )
    return n.define(x.kind, (b, inner, h * s, w * s), lambda b, c, i, j: x(b, channel.format(c=c, i=i, j=j), f"{i}/{s}", f"{j}/{s}"))


@op("SpaceToDepth")
def space_to_depth(n):
    x, s = n[0], n.get("blocksize")
    b, c, h, w = x.shape
    return n.define(
        x.kind, (b, c * s * s, h // s, w // s), lambda b, k, i, j: x(b, f"{k} % {c}", f"{i}*{s} + {k} / {c} / {s}", f"{j}*{s} + {k} / {c} % {s}")
    )


@op("Trilu")
def trilu(n):
    x, k = n[0], int(n.known(1, np.array(0)).reshape(-1)[0])
    sign = ">=" if n.get("upper", 1) else "<="
    return n.define(x.kind, x.shape, lambda *i: f"if {i[-1]} - {i[-2]} {sign} {k} then {x(*i)} else {literal(0, x.kind)}")


@op("EyeLike")
def eye_like(n):
    kind = kind_of(dtype_of(n.get("dtype"))) if "dtype" in n.attributes else n[0].kind
    return n.define(kind, n[0].shape, lambda i, j: f"if {j} == {i} + {n.get('k', 0)} then {literal(1, kind)} else {literal(0, kind)}")


@op("OneHot")
def one_hot(n):
    ids, depth, values = n[0], int(n.known(1).reshape(-1)[0]), n[2]
    axis = n.axis(ids.rank + 1, -1)
    shape = (*ids.shape[:axis], depth, *ids.shape[axis:])
    position = lambda i: f"i64({ids(*i[:axis], *i[axis + 1:])})"
    return n.define(values.kind, shape, lambda *i: f"if {i[axis]} == {wrapped(position(i), depth)} then {values(1)} else {values(0)}")


def wrapped(index, extent):
    """An index that counts from the end when it is negative."""
    return f"(if {index} < 0 then i64({index}) + {extent} else i64({index}))"


def index_at(t, index, extent):
    """The text of an element of a tensor of indices, counted from the begin."""
    if t.kind.is_float:
        raise NotExpressible("indices of floats")
    return wrapped(t(*index), extent) if t.value is None or t.value.size == 0 or t.value.min() < 0 else t(*index)


@op("Gather")
def gather(n):
    x, ids, axis = n[0], n[1], n.axis(n[0].rank, 0)
    shape = (*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :])
    return n.define(x.kind, shape, lambda *i: x(*i[:axis], index_at(ids, i[axis : axis + ids.rank], x.shape[axis]), *i[axis + ids.rank :]))


@op("ArrayFeatureExtractor")
def array_feature_extractor(n):
    x, ids = n[0], n[1]
    count = ids.size
    return n.define(x.kind, (*x.shape[:-1], count), lambda *i: x(*i[:-1], ids(*[0] * (ids.rank - 1), i[-1])))


@op("GatherElements")
def gather_elements(n):
    x, ids, axis = n[0], n[1], n.axis(n[0].rank, 0)
    return n.define(x.kind, ids.shape, lambda *i: x(*i[:axis], index_at(ids, i, x.shape[axis]), *i[axis + 1 :]))


@op("GatherND")
def gather_nd(n):
    x, ids, batch = n[0], n[1], n.get("batch_dims", 0)
    k = ids.shape[-1]
    outer = ids.rank - 1
    shape = (*ids.shape[:-1], *x.shape[batch + k :])
    return n.define(x.kind, shape, lambda *i: x(*i[:batch], *[index_at(ids, (*i[:outer], d), x.shape[batch + d]) for d in range(k)], *i[outer:]))


REDUCE_INTO = {"none": "{0} = {1}", "add": "{0} += {1}", "mul": "{0} *= {1}", "max": "{0} = max({0}, {1})", "min": "{0} = min({0}, {1})"}


def loops(extents, body):
    """Statements in nested loops over axes r0, r1, …"""
    text = body(*[f"r{d}" for d in range(len(extents))])
    for d in reversed(range(len(extents))):
        text = f"for r{d} in 0..{extents[d]} {{ {text} }}"
    return text


def scattered(n, x, extents, target, value, reduction):
    """x, with value(axes) combined into the elements target(axes)."""

    def body(y):
        loop = loops(extents, lambda *r: REDUCE_INTO[reduction].format(f"{y.name}[{','.join(map(str, target(*r)))}]", value(*r)))
        return f"var {y.name} = clone({whole(n, x)})\n{loop}"

    return n.graph.statements([(n.name, x.kind, x.shape)], body)[0]


def whole(n, x):
    """A tensor without indices, in a `prog`."""
    n.graph.read(x)
    return x.name


@op("ScatterElements", "Scatter")
def scatter_elements(n):
    x, ids, updates, axis = n[0], n[1], n[2], n.axis(n[0].rank, 0)
    return scattered(n, x, ids.shape, lambda *r: (*r[:axis], ids(*r), *r[axis + 1 :]), lambda *r: updates(*r), n.get("reduction", "none"))


@op("ScatterND")
def scatter_nd(n):
    x, ids, updates = n[0], n[1], n[2]
    k, outer = ids.shape[-1], ids.rank - 1
    return scattered(
        n,
        x,
        (*ids.shape[:-1], *x.shape[k:]),
        lambda *r: (*[ids(*r[:outer], d) for d in range(k)], *r[outer:]),
        lambda *r: updates(*r),
        n.get("reduction", "none"),
    )


@op("TensorScatter")
def tensor_scatter(n):
    """New rows of a cache, from a place that differs by batch; around its end in the mode circular."""
    past, update, start = n[0], n[1], n[2]
    axis, extent, rows = n.axis(n[0].rank, -2), n[0].shape[n.axis(n[0].rank, -2)], n[1].shape[n.axis(n[0].rank, -2)]

    def body(*i):
        begin = f"i64({start(i[0])})" if start else "0"
        offset = f"({i[axis]} - {begin})" + (f" % {extent}" if n.get("mode", "linear") == "circular" else "")
        return f"if 0 <= {offset} && {offset} < {rows} then {update(*i[:axis], f'clamp({offset}, 0, {rows - 1})', *i[axis + 1:])} else {past(*i)}"

    return n.define(past.kind, past.shape, body)


@op("ReverseSequence")
def reverse_sequence(n):
    x, lengths = n[0], n[1]
    time, batch = n.get("time_axis", 0), n.get("batch_axis", 1)

    def body(*i):
        length = lengths(i[batch])
        return x(*[f"if {k} < {length} then clamp({length} - 1 - {k}, 0, {x.shape[time] - 1}) else {k}" if d == time else k for d, k in enumerate(i)])

    return n.define(x.kind, x.shape, body)


@op("Range")
def range_(n):
    begin, end, step = (n.known(k).reshape(-1)[0] for k in range(3))
    count = max(int(np.ceil((float(end) - float(begin)) / float(step))), 0)
    kind = kind_of(begin.dtype)
    return n.define(kind, (count,), lambda i: f"{n[0](*[0] * n[0].rank)} + {kind.text}({i}) * {n[2](*[0] * n[2].rank)}")


@op("Col2Im")
def col2im(n):
    """Each element of the image is the sum of all columns that cover it."""
    x, image, block = n[0], [int(v) for v in n.known(1)], [int(v) for v in n.known(2)]
    d = len(image)
    dilations, pads, steps = n.ints("dilations", default=[1] * d), n.ints("pads", default=[0] * 2 * d), n.ints("strides", default=[1] * d)
    counts = [(image[k] + pads[k] + pads[k + d] - dilations[k] * (block[k] - 1) - 1) // steps[k] + 1 for k in range(d)]
    channels = x.shape[1] // int(np.prod(block))

    def body(b, c, *i):
        r, s = [f"r{k}" for k in range(d)], [f"r{k + d}" for k in range(d)]
        ranges = ", ".join([f"r{k} in 0..{block[k]}" for k in range(d)] + [f"r{k + d} in 0..{counts[k]}" for k in range(d)])
        hits = " && ".join(f"{i[k]} + {pads[k]} == {s[k]}*{steps[k]} + {r[k]}*{dilations[k]}" for k in range(d))
        return f"sum({ranges} if {hits}: {x(b, f'{c}*{int(np.prod(block))} + {flat(r, block)}', flat(s, counts))})"

    return n.define(x.kind, (x.shape[0], channels, *image), body)


@op("Bernoulli", "RandomUniformLike", "RandomNormalLike", "RandomUniform", "RandomNormal")
def random(n):
    raise NotExpressible("random numbers of another generator")
