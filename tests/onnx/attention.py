"""Attention and what belongs to it: rotary embeddings, attention with a state, causal convolutions with a state."""

import math

import numpy as np

from elementwise import cast_to, elementwise, number
from graph import F32, kind_of, literal
from importer import dtype_of, op
from reductions import elementwise_named, softmax_parts
from views import joined


def heads(n, x, count, name):
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    if x is None or x.rank == 4:
        return x
    b, t, width = x.shape
    return n.graph.define(x.kind, (b, count, t, width // count), lambda b, h, t, d: x(b, t, f"{h}*{width // count} + {d}"), name)


def merged(n, y):
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    b, h, t, d = y.shape
    return n.define(y.kind, (b, t, h * d), lambda b, t, k: y(b, f"{k}/{d}", t, f"{k}%{d}"))


@op("Attention")
def attention(n):
    mask, past_k, past_v, lengths = (n[k] for k in range(3, 7))
    three = n[0].rank == 3
    q, k, v = (heads(n, n[i], n.get(a), name) for i, a, name in ((0, "q_num_heads", "q"), (1, "kv_num_heads", "k"), (2, "kv_num_heads", "v")))
    present_k = joined(n, [past_k, k], 2, "present_k") if past_k else elementwise_named(n, "{0}", [k], "present_k")
    present_v = joined(n, [past_v, v], 2, "present_v") if past_v else elementwise_named(n, "{0}", [v], "present_v")
    before = past_k.shape[2] if past_k else 0
    b, h, s, size = q.shape
    total, group = present_k.shape[2], h // present_k.shape[1]
    scale, cap, mode = number(n.get("scale", 1 / math.sqrt(size))), n.get("softcap", 0.0), n.get("qk_matmul_output_mode", 0)
    of = lambda head: f"{head}/{group}" if group > 1 else head
    define, shape = n.graph.define, (b, h, s, total)
    product = define(q.kind, shape, lambda b, h, i, j: f"{scale} * sum(r0 in 0..{size}: {q(b, h, i, 'r0')} * {present_k(b, of(h), j, 'r0')})", "qk")
    capped = elementwise_named(n, f"{number(cap)} * tanh({{0}} / {number(cap)})", [product], "capped") if cap else product

    def biased(b, h, i, j):
        text, last = capped(b, h, i, j), mask.shape[-1] if mask else 0
        seen = []
        if mask:
            index = [0 if e == 1 else k for e, k in zip(mask.shape, (b, h, i)[4 - mask.rank :])]
            inside = "" if last == total else f"{j} < {last}"
            at = (*index, j if last > 1 or total == 1 else 0)
            if mask.kind.is_bool:
                seen.append(mask(*at) if not inside else mask(*at, otherwise="false"))
            else:
                text += f" + {mask(*at) if not inside else mask(*at, otherwise=literal(-np.inf, mask.kind))}"
        if n.get("is_causal", 0):
            seen.append(f"{j} <= {i} + {before}")
        if lengths:
            seen.append(f"{j} < i64({lengths(b)})")
        return f"if {' && '.join(seen)} then {text} else {literal(-np.inf, q.kind)}" if seen else text

    score = define(q.kind, shape, biased, "score")
    wide = cast_to(n, score, kind_of(dtype_of(n.get("softmax_precision")))) if "softmax_precision" in n.attributes else score
    e, total_e, _ = softmax_parts(n, wide, [3])
    p = elementwise_named(n, "{0} / {1}", [e, total_e], "p")
    y = define(
        q.kind,
        (b, h, s, present_v.shape[3]),
        lambda b, h, i, d: f"{q.kind.text}(sum(r0 in 0..{total}: {p(b, h, i, 'r0')} * {p.kind.text}({present_v(b, of(h), 'r0', d)})))",
        "y4" if three else n.name,
    )
    shown = {0: capped, 1: capped, 2: score, 3: p}[mode]
    shown = elementwise_named(n, f"{q.kind.text}({{0}})", [shown], "shown", q.kind)
    return merged(n, y) if three else y, present_k, present_v, shown


@op("RotaryEmbedding")
def rotary_embedding(n):
    x, cos, sin, ids = n[0], n[1], n[2], n[3]
    three = x.rank == 3
    x4 = heads(n, x, n.get("num_heads", 0), "x4")
    size = x4.shape[3]
    turned = n.get("rotary_embedding_dim", 0) or size
    half, apart = turned // 2, n.get("interleaved", 0)

    def body(b, h, t, d):
        pair = f"{d}/2" if apart else f"{d}%{half}"
        inside = f"clamp({pair}, 0, {half - 1})" if turned < size else pair
        at = (ids(b, t), inside) if ids else (b, t, inside)
        first, second = (
            (x4(b, h, t, f"{inside}*2"), x4(b, h, t, f"{inside}*2 + 1")) if apart else (x4(b, h, t, inside), x4(b, h, t, f"{inside} + {half}"))
        )
        real = f"{cos(*at)} * {first} - {sin(*at)} * {second}"
        imaginary = f"{sin(*at)} * {first} + {cos(*at)} * {second}"
        text = f"if {f'{d}%2 == 0' if apart else f'{d} < {half}'} then {real} else {imaginary}"
        return f"if {d} < {turned} then {text} else {x4(b, h, t, d)}" if turned < size else text

    y = n.graph.define(x.kind, x4.shape, body, "y4" if three else n.name)
    return merged(n, y) if three else y


@op("LinearAttention")
def linear_attention(n):
    """A state that each step decays, corrects and adds to: a loop of a `prog`."""
    q_heads, kv_heads, rule = n.get("q_num_heads"), n.get("kv_num_heads"), n.get("update_rule", "gated_delta")
    f32 = lambda t: cast_to(n, t, F32)
    q, k, v = (heads(n, f32(n[i]), count, name) for i, count, name in ((0, q_heads, "q"), (1, kv_heads, "k"), (2, kv_heads, "v")))
    past, decay, beta = (f32(n[i]) if n.has(i) else None for i in (3, 4, 5))
    b, _, steps, dk = q.shape
    dv, group = v.shape[3], q_heads // kv_heads
    scale = n.get("scale", 0.0) or 1 / math.sqrt(dk)
    gate = (lambda t: decay("i0", t, "i1" if decay.shape[2] == kv_heads else f"i1*{dk} + i2")) if decay else None
    rate = (lambda t: beta("i0", t, "i1" if beta.shape[2] == kv_heads else 0)) if beta else None
    box = f"i0 in 0..{b}, i1 in 0..{kv_heads}"

    value, row = n.graph.name("value"), n.graph.name("row")

    def body(state, out):
        s = state.name
        begin = f"clone({past.name})" if past else f"zeros f32[{b},{kv_heads},{dk},{dv}]"
        if past:
            n.graph.read(past)
        lines = [f"var {s} = {begin}", f"var {out.name} = zeros f32[{steps},{b},{q_heads},{dv}]", f"for t in 0..{steps} {{"]
        if gate:
            lines.append(f"  {s}[{box}, i2 in 0..{dk}, i3 in 0..{dv}] = {s}[i0,i1,i2,i3] * exp({gate('t')})")
        lines.append(
            f"  {value}[{box}, i2 in 0..{dv}] = "
            + (
                f"{rate('t')} * ({v('i0', 'i1', 't', 'i2')} - sum(r0 in 0..{dk}: {s}[i0,i1,r0,i2] * {k('i0', 'i1', 't', 'r0')}))"
                if rate
                else v("i0", "i1", "t", "i2")
            )
        )
        lines.append(f"  {s}[{box}, i2 in 0..{dk}, i3 in 0..{dv}] = {s}[i0,i1,i2,i3] + {k('i0', 'i1', 't', 'i2')} * {value}[i0,i1,i3]")
        lines.append(
            f"  {row}[i0 in 0..{b}, i1 in 0..{q_heads}, i2 in 0..{dv}] = {number(scale)} * sum(r0 in 0..{dk}: {q('i0', 'i1', 't', 'r0')} * {s}[i0,i1/{group},r0,i2])"
        )
        lines += [f"  {out.name}[t] = {row}", "}"]
        return "\n".join(lines)

    n.graph.names.add("t")
    state, out = n.graph.statements([("state", F32, (b, kv_heads, dk, dv)), ("out", F32, (steps, b, q_heads, dv))], body)
    y = n.define(n[0].kind, (b, steps, q_heads * dv), lambda b, t, c: f"{n[0].kind.text}({out(t, b, f'{c}/{dv}', f'{c}%{dv}')})")
    return y, cast_to(n, state, n[3].kind if n.has(3) else n[0].kind)


@op("CausalConvWithState")
def causal_conv_with_state(n):
    x, w, bias, past = n[0], n[1], n[2], n[3]
    b, c, length = x.shape
    k = w.shape[2]
    padded = (
        joined(n, [past, x], 2, "padded")
        if past and k > 1
        else n.graph.define(x.kind, (b, c, length + k - 1), lambda b, c, t: x(b, c, f"{t} - {k - 1}", otherwise=0), "padded")
    )
    y = n.graph.define(
        x.kind,
        x.shape,
        lambda b, c, t: f"sum(r0 in 0..{k}: {padded(b, c, f'{t} + r0')} * {w(c, 0, 'r0')})" + (f" + {bias(c)}" if bias else ""),
        "conv",
    )
    y = elementwise(n, "{0} * sigmoid({0})" if n.get("activation", "none") != "none" else "{0}", [y])
    return y, n.graph.define(x.kind, (b, c, k - 1), lambda b, c, t: padded(b, c, f"{t} + {length}"), "present")
