"""Graphs inside of nodes: both sides of an If by a condition, loops and scans of known length written out step by step."""

import math

import numpy as np

from elementwise import elementwise, number
from graph import NotExpressible
from importer import Scope, op
from reductions import elementwise_named, softmax_parts


def inlined(n, body, given):
    """The results of a graph inside of the node, with tensors for its inputs."""
    scope = Scope(n.graph, body, n.scope.versions, n.scope.run, n.scope, given)
    return [scope.tensor(o.name) for o in body.output], scope


@op("If")
def if_(n):
    sides = [n.attributes["then_branch"], n.attributes["else_branch"]]
    if any(o.type.WhichOneof("value") not in (None, "tensor_type") for g in sides for o in g.output):
        raise NotExpressible("sequences and optional values")
    if n.scope.is_constant(n.proto.input[0]):
        results, _ = inlined(n, sides[0 if n.known(0).reshape(-1)[0] else 1], {})
        return results
    condition = n[0]
    then, otherwise = (inlined(n, g, {})[0] for g in sides)
    if any(a.shape != b.shape for a, b in zip(then, otherwise)):
        return then if n.known(0).reshape(-1)[0] else otherwise
    return [
        n.define(a.kind, a.shape, lambda *i: f"if {condition(*[0] * condition.rank)} then {a(*i)} else {b(*i)}", name)
        for a, b, name in zip(then, otherwise, n.proto.output)
    ]


def stacked(n, rows, name):
    """Tensors beside each other along a new first axis."""

    def body(t, *i):
        text = rows[-1](*i)
        for k in reversed(range(len(rows) - 1)):
            text = f"if {t} == {k} then {rows[k](*i)} else {text}"
        return text

    return n.define(rows[0].kind, (len(rows), *rows[0].shape), body, name)


@op("Loop")
def loop(n):
    body = n.attributes["body"]
    if any(i.type.WhichOneof("value") not in (None, "tensor_type") for i in list(body.input) + list(body.output)):
        raise NotExpressible("sequences and optional values")
    trips = int(n.known(0).reshape(-1)[0]) if n.has(0) else 1000
    go = bool(n.known(1).reshape(-1)[0]) if n.has(1) else True
    carried = [n[k] for k in range(2, len(n))]
    rows = [[] for _ in range(len(body.output) - 1 - len(carried))]
    step = 0
    while step < trips and go:
        given = dict(zip([i.name for i in body.input], [n.graph.constant(np.array(step, np.int64)), n.graph.constant(np.array(True)), *carried]))
        results, scope = inlined(n, body, given)
        carried = results[1 : 1 + len(carried)]
        for row, r in zip(rows, results[1 + len(carried) :]):
            row.append(r)
        go = bool(scope.known(body.output[0].name).reshape(-1)[0])
        step += 1
    return carried + [stacked(n, row, name) for row, name in zip(rows, n.proto.output[len(carried) :])]


@op("Scan")
def scan(n):
    body, count = n.attributes["body"], n.get("num_scan_inputs")
    first = 1 if n.version < 9 else 0  # of version 8: lengths of the sequences, and a batch
    states = [n[k] for k in range(first, len(n) - count)]
    scanned = [n[k] for k in range(len(n) - count, len(n))]
    if first:
        if states[0].shape[0] != 1:
            raise NotExpressible("Scan of version 8 over a batch")
        states = [n.graph.define(s.kind, s.shape[1:], lambda *i, s=s: s(0, *i), "state") for s in states]
        scanned = [n.graph.define(s.kind, s.shape[1:], lambda *i, s=s: s(0, *i), "scanned") for s in scanned]
    axes_in, axes_out = n.ints("scan_input_axes", default=[0] * count), n.ints("scan_output_axes", default=[0] * (len(body.output) - len(states)))
    back = n.ints("scan_input_directions", default=[0] * count)
    steps = scanned[0].shape[axes_in[0]]
    rows = [[] for _ in range(len(body.output) - len(states))]
    for step in range(steps):
        at = []
        for s, a, turned in zip(scanned, axes_in, back):
            a %= s.rank
            k = steps - 1 - step if turned else step
            at.append(n.graph.define(s.kind, s.shape[:a] + s.shape[a + 1 :], lambda *i, s=s, a=a, k=k: s(*i[:a], k, *i[a:]), "at"))
        results, _ = inlined(n, body, dict(zip([i.name for i in body.input], states + at)))
        states = results[: len(states)]
        for row, r in zip(rows, results[len(states) :]):
            row.append(r)
    results = list(states)
    for row, axis, name in zip(rows, axes_out, n.proto.output[len(states) :]):
        y = stacked(n, row, name)
        axis %= y.rank
        if axis:
            y = n.define(
                y.kind,
                (*y.shape[1 : axis + 1], y.shape[0], *y.shape[axis + 1 :]),
                lambda *i, y=y, axis=axis: y(i[axis], *i[:axis], *i[axis + 1 :]),
                name,
            )
        results.append(y)
    if first:
        results = [n.graph.define(r.kind, (1, *r.shape), lambda _, *i, r=r: r(*i), name) for r, name in zip(results, n.proto.output)]
    return results


@op("OptionalGetElement")
def optional_get_element(n):
    return elementwise(n, "{0}", [n[0]])


@op("FlexAttention")
def flex_attention(n):
    """Attention with graphs that change the scores and the probabilities."""
    q, k, v = n[0], n[1], n[2]
    group, scale = q.shape[1] // k.shape[1], number(n.get("scale", 1 / math.sqrt(q.shape[3])))
    of = lambda h: f"{h}/{group}" if group > 1 else h
    shape = (*q.shape[:3], k.shape[2])
    score = n.graph.define(
        q.kind, shape, lambda b, h, i, j: f"{scale} * sum(r0 in 0..{q.shape[3]}: {q(b, h, i, 'r0')} * {k(b, of(h), j, 'r0')})", "score"
    )
    if "score_mod" in n.attributes:
        g = n.attributes["score_mod"]
        score = inlined(n, g, {g.input[0].name: score})[0][0]
    e, s, _ = softmax_parts(n, score, [3])
    p = elementwise_named(n, "{0} / {1}", [e, s], "p")
    if "prob_mod" in n.attributes:
        g = n.attributes["prob_mod"]
        p = inlined(n, g, {g.input[0].name: p})[0][0]
    return n.define(q.kind, (*q.shape[:3], v.shape[3]), lambda b, h, i, d: f"sum(r0 in 0..{k.shape[2]}: {p(b, h, i, 'r0')} * {v(b, of(h), 'r0', d)})")
