"""Images read between their elements."""

import numpy as np

from elementwise import elementwise, number
from graph import F32, NotExpressible
from importer import op

CUBIC = "((a + 2)*d - (a + 3))*d*d + 1"


def source(mode, o, scale, size, result, start=0.0, end=1.0):
    """The text of the position in an image of `size` of element o of the result."""
    o = f"f32({o})"
    return {
        "half_pixel": f"({o} + 0.5) / {scale} - 0.5",
        "asymmetric": f"{o} / {scale}",
        "pytorch_half_pixel": f"({o} + 0.5) / {scale} - 0.5" if result > 1 else "0.0",
        "align_corners": f"{o} * {number((size - 1) / (scale * size - 1) if result > 1 else 0.0)}",
        "half_pixel_symmetric": f"{size / 2} * (1 - {result} / ({scale} * {size})) + ({o} + 0.5) / {scale} - 0.5",
        "tf_crop_and_resize": (
            f"{start * (size - 1)} + {o} * {(end - start) * (size - 1) / max(result - 1, 1)}" if result > 1 else f"{0.5 * (start + end) * (size - 1)}"
        ),
        "tf_half_pixel_for_nn": f"({o} + 0.5) / {scale}",
    }[mode]


NEAREST = {"round_prefer_floor": "ceil({p} - 0.5)", "round_prefer_ceil": "floor({p} + 0.5)", "floor": "floor({p})", "ceil": "ceil({p})"}


@op("Resize", "Upsample")
def resize(n):
    x, old = n[0], n.proto.op_type == "Upsample"
    scales = [float(v) for v in n.known(1 if old or n.version < 11 else 2, np.array(n.get("scales", [])))]
    sizes = n.ints("sizes", 3) if not old and n.has(3) else None
    axes = [a % x.rank for a in n.ints("axes", default=range(x.rank))]
    roi = [float(v) for v in n.known(1)] if not old and n.has(1) and n.version >= 11 else []
    policy = n.get("keep_aspect_ratio_policy", "stretch")
    if sizes:
        ratios = [s / x.shape[a] for s, a in zip(sizes, axes)]
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            sizes, ratios = [int(np.floor(ratio * x.shape[a] + 0.5)) for a in axes], [ratio] * len(axes)
        scales = ratios
    shape, scale = list(x.shape), [1.0] * x.rank
    span = [(0.0, 1.0)] * x.rank
    for k, a in enumerate(axes):
        span[a] = (roi[k], roi[k + len(axes)]) if len(roi) == 2 * len(axes) else (0.0, 1.0)
        shape[a] = (
            sizes[k]
            if sizes
            else int(
                np.floor(
                    x.shape[a]
                    * (scales[k] * (span[a][1] - span[a][0]) if n.get("coordinate_transformation_mode") == "tf_crop_and_resize" else scales[k])
                )
            )
        )
        scale[a] = scales[k]
    mode, place, anti = (
        n.get("mode", "nearest"),
        n.get("coordinate_transformation_mode", "asymmetric" if old or n.version < 11 else "half_pixel"),
        n.get("antialias", 0),
    )
    rounding, a, exclude, outside = (
        n.get("nearest_mode", "floor" if old else "round_prefer_floor"),
        n.get("cubic_coeff_a", -0.75),
        n.get("exclude_outside", 0),
        n.get("extrapolation_value", 0.0),
    )

    result, last = x, None
    for d in range(x.rank):  # one dimension after the other
        if shape[d] == x.shape[d] and scale[d] == 1.0 and span[d] == (0.0, 1.0):
            continue
        result = resized(n, result, d, shape[d], scale[d], span[d], mode, place, anti, rounding, a, exclude)
    result = elementwise(n, "{0}", [result])
    if place == "tf_crop_and_resize":  # what lies outside has a value of its own

        def body(*i):
            tests = [
                f"0 <= {t} && {t} <= {e - 1}"
                for t, e in ((source(place, i[d], scale[d], x.shape[d], shape[d], *span[d]), x.shape[d]) for d in range(x.rank) if d in axes)
            ]
            return f"if {' && '.join(tests)} then {result(*i)} else {number(outside)}"

        return n.define(x.kind, shape, body)
    return result


def resized(n, x, d, count, scale, span, mode, place, anti, rounding, a, exclude):
    size = x.shape[d]
    shape = list(x.shape)
    shape[d] = count
    define = n.graph.define
    position = define(F32, (count,), lambda o: source(place, o, scale, size, count, *span), "position")
    at = lambda i, k: x(*i[:d], f"clamp({k}, 0, {size - 1})", *i[d + 1 :])
    if mode == "nearest":
        return define(x.kind, shape, lambda *i: at(i, f"i64({NEAREST[rounding].format(p=position(i[d]))})"), "near")
    wide = min(scale, 1.0) if anti else 1.0  # when it shrinks, the filter is as wide as what becomes one element
    reach = 1 if mode == "linear" else 2
    half = int(np.ceil(reach / wide))
    taps = 2 * half

    def weight(o, r):
        distance = f"abs(({r} - {half - 1}) - ({position(o)} - floor({position(o)})))"
        if wide != 1.0:
            distance = f"({distance} * {wide})"
        if mode == "linear":
            return f"max(0, 1 - {distance})"
        near, far = f"(({a} + 2)*{distance} - ({a} + 3))*{distance}^2 + 1", f"(({a}*{distance} - 5*({a}))*{distance} + 8*({a}))*{distance} - 4*({a})"
        return f"if {distance} <= 1 then {near} else if {distance} < 2 then {far} else 0"

    raw = define(F32, (count, taps), lambda o, r: weight(o, f"f32({r})"), "weight")
    place_of = lambda o, r: f"i64(floor({position(o)})) + {r} - {half - 1}"
    if exclude:
        kept = define(F32, (count, taps), lambda o, r: f"if 0 <= {place_of(o, r)} && {place_of(o, r)} < {size} then {raw(o, r)} else 0", "kept")
    else:
        kept = raw
    if exclude or anti:
        kept = define(F32, (count, taps), lambda o, r, kept=kept: f"{kept(o, r)} / sum(r0 in 0..{taps}: {kept(o, 'r0')})", "share")
    return define(x.kind, shape, lambda *i: f"sum(r0 in 0..{taps}: {kept(i[d], 'r0')} * {at(i, place_of(i[d], 'r0'))})", "between")


@op("GridSample")
def grid_sample(n):
    x, grid = n[0], n[1]
    mode, padding, corners = n.get("mode", "linear"), n.get("padding_mode", "zeros"), n.get("align_corners", 0)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    space = x.shape[2:]
    d = len(space)
    define, points = n.graph.define, grid.shape[1:-1]

    def place(k, b, o):  # grid's last dimension is x, y, z
        g = grid(b, *o, d - 1 - k)
        return f"({g} + 1) / 2 * {space[k] - 1}" if corners else f"(({g} + 1) * {space[k]} - 1) / 2"

    def reflected(p, k):
        low, high = (0.0, space[k] - 1.0) if corners else (-0.5, space[k] - 0.5)
        period = high - low
        if period == 0:
            return "0.0"
        turn = f"abs({p} - {number(low)}) % {2 * period}"
        return f"({number(low)} + (if {turn} > {period} then {2 * period} - {turn} else {turn}))"

    reflect = padding == "reflection"
    where = []
    for k in range(d):
        raw = define(F32, (grid.shape[0], *points), lambda b, *o: place(k, b, o), "place")
        where.append(
            define(F32, raw.shape, lambda b, *o: f"clamp({reflected(raw(b, *o), k)}, 0, {space[k] - 1})", "turned")
            if reflect and mode != "cubic"
            else (
                define(F32, raw.shape, lambda b, *o: f"clamp({raw(b, *o)}, 0, {space[k] - 1})", "held")
                if padding == "border" and mode != "cubic"
                else raw
            )
        )

    def read(b, c, at):
        if padding == "border":
            at = [f"clamp({t}, 0, {e - 1})" for t, e in zip(at, space)]
        elif reflect:
            at = [f"clamp(i64({reflected(f'f32({t})', k)}), 0, {space[k] - 1})" for k, t in enumerate(at)]
        return x(b, c, *at, otherwise=0)

    shape = (x.shape[0], x.shape[1], *points)
    if mode == "nearest":
        return n.define(x.kind, shape, lambda b, c, *o: read(b, c, [f"i64(round({w(b, *o)}))" for w in where]))
    taps, first = (2, 0) if mode == "linear" else (4, 1)
    ranges = ", ".join(f"r{k} in 0..{taps}" for k in range(d))
    if mode == "cubic":
        a = -0.75
        weights = [
            define(
                F32,
                (*w.shape, 4),
                lambda *i: (
                    lambda t: f"if {t} <= 1 then ((({a}) + 2)*{t} - (({a}) + 3))*{t}^2 + 1 else ((({a})*{t} - 5*({a}))*{t} + 8*({a}))*{t} - 4*({a})"
                )(f"abs(f32({i[-1]}) - 1 - ({w(*i[:-1])} - floor({w(*i[:-1])})))"),
                "weight",
            )
            for w in where
        ]
    else:
        weights = [
            define(
                F32,
                (*w.shape, 2),
                lambda *i: f"if {i[-1]} == 0 then 1 - ({w(*i[:-1])} - floor({w(*i[:-1])})) else {w(*i[:-1])} - floor({w(*i[:-1])})",
                "weight",
            )
            for w in where
        ]

    def body(b, c, *o):
        product = " * ".join(w(b, *o, f"r{k}") for k, w in enumerate(weights))
        return f"sum({ranges}: {product} * {read(b, c, [f'i64(floor({w(b, *o)})) + r{k} - {first}' for k, w in enumerate(where)])})"

    return n.define(x.kind, shape, body)


@op("RoiAlign")
def roi_align(n):
    x, rois, batch = n[0], n[1], n[2]
    h, w, ratio = n.get("output_height", 1), n.get("output_width", 1), n.get("sampling_ratio", 0)
    scale, half = number(n.get("spatial_scale", 1.0)), 0.5 if n.get("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0.0
    if ratio == 0:
        raise NotExpressible("shapes that depend on data")
    rows, columns = x.shape[2:]

    def start(r, k):
        return f"({rois(r, k)} * {scale} - {half})"

    def extent(r, k):
        size = f"({start(r, k + 2)} - {start(r, k)})"
        return size if half else f"max({size}, 1.0)"

    # Samples: [roi, bin, sample of the bin] along each axis.
    def places(k, bins, limit, name):
        made = n.graph.define(
            F32,
            (rois.shape[0], bins, ratio),
            lambda r, b, s: f"{start(r, k)} + (f32({b}) + (f32({s}) + 0.5) / {ratio}) * {extent(r, k)} / {bins}",
            name,
        )
        return made, n.graph.define(F32, made.shape, lambda *i: f"clamp({made(*i)}, 0, {limit - 1})", f"{name}_held")

    (y, y_held), (x_, x_held) = places(1, h, rows, "row"), places(0, w, columns, "column")

    def body(r, c, i, j):
        p, q = y_held(r, i, "r0"), x_held(r, j, "r1")
        read = lambda a, b: x(batch(r), c, f"clamp(i64(floor({p})){a}, 0, {rows - 1})", f"clamp(i64(floor({q})){b}, 0, {columns - 1})")
        s, t = f"({p} - floor({p}))", f"({q} - floor({q}))"
        terms = [f"(1-{s})*(1-{t})*{read('', '')}", f"(1-{s})*{t}*{read('', '+1')}", f"{s}*(1-{t})*{read('+1', '')}", f"{s}*{t}*{read('+1', '+1')}"]
        inside = f"{y(r, i, 'r0')} >= -1 && {y(r, i, 'r0')} <= {rows} && {x_(r, j, 'r1')} >= -1 && {x_(r, j, 'r1')} <= {columns}"
        if n.get("mode", "avg") == "max":
            largest = terms[0]
            for t_ in terms[1:]:
                largest = f"max({largest}, {t_})"
            return f"max(r0 in 0..{ratio}, r1 in 0..{ratio}: if {inside} then {largest} else 0)"
        return f"sum(r0 in 0..{ratio}, r1 in 0..{ratio} if {inside}: {' + '.join(terms)}) / {ratio * ratio}"

    return n.define(x.kind, (rois.shape[0], x.shape[1], h, w), body)
