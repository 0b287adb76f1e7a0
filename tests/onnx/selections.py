"""Ops that sort and select: by how many come before. Where data decide the size of a result, it is the one that the model declares."""

from graph import BOOL, F32, I64, NotExpressible, literal
from importer import op
from views import reshaped, unflat


@op("TopK")
def top_k(n):
    """An element's rank is how many come before it; result k is the element of rank k."""
    x, axis = n[0], n.axis(n[0].rank, -1)
    count, extent = int(n.known(1).reshape(-1)[0]) if n.has(1) else n.get("k"), n[0].shape[n.axis(n[0].rank, -1)]
    before = ">" if n.get("largest", 1) else "<"
    rank = n.define(
        I64,
        x.shape,
        lambda *i: f"sum(r0 in 0..{extent}: if {x(*i[:axis], 'r0', *i[axis + 1:])} {before} {x(*i)} || "
        f"{x(*i[:axis], 'r0', *i[axis + 1:])} == {x(*i)} && r0 < {i[axis]} then i64(1) else 0)",
        "rank",
    )
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    where = n.define(I64, shape, lambda *i: f"sum(r0 in 0..{extent} if {rank(*i[:axis], 'r0', *i[axis + 1:])} == {i[axis]}: r0)", n.proto.output[1])
    return n.define(x.kind, shape, lambda *i: x(*i[:axis], where(*i), *i[axis + 1 :])), where


@op("Compress")
def compress(n):
    """Element k is at the position of the condition that holds, and before which k others hold."""
    x, condition = n[0], n[1]
    if "axis" in n.attributes:
        axis = n.axis(x.rank)
    else:
        x, axis = reshaped(n, x, (x.size,), "flat"), 0
    shape, extent = n.declared(0), min(condition.shape[0], x.shape[axis])
    before = n.graph.define(I64, (extent,), lambda i: f"sum(r0 in 0..{i}: i64({condition('r0')}))", "before")
    place = n.graph.define(I64, (shape[axis],), lambda k: f"sum(r0 in 0..{extent} if {condition('r0')} && {before('r0')} == {k}: r0)", "place")
    return n.define(x.kind, shape, lambda *i: x(*i[:axis], place(i[axis]), *i[axis + 1 :]))


@op("NonZero")
def non_zero(n):
    x, (rank, count) = n[0], n.declared(0)
    holds = n.graph.define(BOOL, (x.size,), lambda p: f"{x(*unflat(p, x.shape))} != {literal(0, x.kind)}", "holds")
    before = n.graph.define(I64, (x.size,), lambda p: f"sum(r0 in 0..{p}: i64({holds('r0')}))", "before")
    place = n.graph.define(I64, (count,), lambda k: f"sum(r0 in 0..{x.size} if {holds('r0')} && {before('r0')} == {k}: r0)", "place")

    def body(d, k):
        at = unflat(place(k), x.shape)
        return "".join(f"if {d} == {j} then {text} else " for j, text in enumerate(at[:-1])) + at[-1]

    return n.define(I64, (rank, count), body)


@op("Unique")
def unique(n):
    """Slices along an axis, or single elements: each is compared with all others."""
    x = n[0]
    if "axis" in n.attributes:
        axis = n.axis(x.rank)
    else:
        x, axis = reshaped(n, x, (x.size,), "flat"), 0
    extent, count, inside = x.shape[axis], n.declared(0)[axis], [e for d, e in enumerate(x.shape) if d != axis]
    size = int(x.size // max(extent, 1))
    slices = n.graph.define(x.kind, (extent, size), lambda a, p: x(*(at := unflat(p, inside))[:axis], a, *at[axis:]), "slices")
    define = n.graph.define
    same = define(BOOL, (extent, extent), lambda a, b: f"all(r0 in 0..{size}: {slices(a, 'r0')} == {slices(b, 'r0')})", "same")
    less = define(
        BOOL,
        (extent, extent),
        lambda a, b: f"any(r0 in 0..{size}: {slices(a, 'r0')} < {slices(b, 'r0')} && all(r1 in 0..r0: {slices(a, 'r1')} == {slices(b, 'r1')}))",
        "less",
    )
    first = define(BOOL, (extent,), lambda a: f"!any(r0 in 0..{a}: {same(a, 'r0')})", "first")
    if n.get("sorted", 1):
        place = define(I64, (extent,), lambda a: f"sum(r0 in 0..{extent}: i64({first('r0')} && {less('r0', a)}))", "place")
    else:
        place = define(I64, (extent,), lambda a: f"min(r0 in 0..{extent} if {same('r0', a)}: sum(r1 in 0..r0: i64({first('r1')})))", "place")
    outputs = dict(enumerate([*n.proto.output, *[""] * 4]))
    index = define(I64, (count,), lambda k: f"min(r0 in 0..{extent} if {place('r0')} == {k}: r0)", outputs[1] or "index")
    y = n.define(x.kind, n.declared(0), lambda *i: x(*i[:axis], f"clamp({index(i[axis])}, 0, {extent - 1})", *i[axis + 1 :]))
    inverse = define(I64, (extent,), lambda a: place(a), outputs[2] or "inverse")
    counts = define(I64, (count,), lambda k: f"sum(r0 in 0..{extent} if {place('r0')} == {k}: i64(1))", outputs[3] or "counts")
    return y, index, inverse, counts


@op("TfIdfVectorizer")
def tf_idf(n):
    """For each n-gram of the table how often it stands in a row, its words next to each other or with the same number of words between."""
    x, a = n[0], n.attributes
    if n.get("mode") != "TF" or "pool_int64s" not in a:
        raise NotExpressible("strings" if "pool_strings" in a else "TfIdfVectorizer with weights")
    pool, starts, columns = a["pool_int64s"], [*a["ngram_counts"], len(a["pool_int64s"])], a["ngram_indexes"]
    grams = [
        (pool[b + k * length : b + (k + 1) * length]) for length, (b, e) in enumerate(zip(starts, starts[1:]), 1) for k in range((e - b) // length)
    ]
    words = x.shape[-1]

    def count(row, gram):
        terms = []
        for skip in range(1 if len(gram) == 1 else n.get("max_skip_count") + 1):
            reach = (len(gram) - 1) * (skip + 1)
            if not n.get("min_gram_length") <= len(gram) <= n.get("max_gram_length") or reach >= words:
                continue
            hits = " && ".join(f"{x(*row, f'r0 + {k * (skip + 1)}')} == {word}" for k, word in enumerate(gram))
            terms.append(f"sum(r0 in 0..{words - reach}: i64({hits}))")
        return f"f32({' + '.join(terms)})" if terms else "0.0"

    def body(*i):
        *row, column = i
        return "".join(f"if {column} == {c} then {count(row, g)} else " for c, g in zip(columns, grams)) + "0.0"

    return n.define(F32, (*x.shape[:-1], max(columns) + 1), body)


@op("NonMaxSuppression", "StringSplit")
def data_shapes(n):
    raise NotExpressible("shapes that depend on data")
