"""Recurrent layers, as loops of a `prog`; of one direction, from the first element to the last."""
from graph import NotExpressible
from importer import op
from views import whole

# What a step makes of the gates g0, g1, … (x * W + bias of x) and the state h (and c): by the lines in front, the new state.
CELLS = {
    "RNN": (1, ["h[{bj}] = tanh({x0} + {h0})"]),
    "LSTM": (4, ["gi[{bj}] = sigmoid({x0} + {h0} + {pi} * c[i0,i1])", "gf[{bj}] = sigmoid({x2} + {h2} + {pf} * c[i0,i1])",
                 "c[{bj}] = gf[i0,i1] * c[i0,i1] + gi[i0,i1] * tanh({x3} + {h3})", "h[{bj}] = sigmoid({x1} + {h1} + {po} * c[i0,i1]) * tanh(c[i0,i1])"]),
    "GRU": (3, ["gz[{bj}] = sigmoid({x0} + {h0})", "gr[{bj}] = sigmoid({x1} + {h1})", "{reset}", "h[{bj}] = (1 - gz[i0,i1]) * gh[i0,i1] + gz[i0,i1] * h[i0,i1]"]),
}


@op(*CELLS)
def recurrent(n):
    kind = n.proto.op_type
    gates, lines = CELLS[kind]
    x, w, r, bias, lengths, first_h = (n[k] for k in range(6))
    first_c, peep = (n[6], n[7]) if kind == "LSTM" else (None, None)
    if n.get("direction", "forward") != "forward" or n.get("clip") is not None or n.get("activations") is not None:
        raise NotExpressible("recurrent layers of two directions or with other activations")
    layout, hidden, size = n.get("layout", 0), r.shape[-1], w.shape[-1]
    batch, steps = (x.shape[0], x.shape[1]) if layout else (x.shape[1], x.shape[0])
    box = f"i0 in 0..{batch}, i1 in 0..{hidden}"

    def body(out, h, *more):
        at = x("i0", "t", "r0") if layout else x("t", "i0", "r0")
        names = dict(bj=box, pi="0", pf="0", po="0")
        if peep:
            names.update(pi=peep(0, "i1"), po=peep(0, f"i1+{hidden}"), pf=peep(0, f"i1+{2 * hidden}"))
        for g in range(gates):
            row = f"i1+{g * hidden}" if g else "i1"
            names[f"x{g}"] = f"sum(r0 in 0..{size}: {at} * {w(0, row, 'r0')})" + (f" + {bias(0, row)}" if bias else "")
            names[f"h{g}"] = f"sum(r1 in 0..{hidden}: h[i0,r1] * {r(0, row, 'r1')})" + (f" + {bias(0, f'i1+{(g + gates) * hidden}')}" if bias else "")
        if kind == "GRU" and n.get("linear_before_reset", 0):
            names["reset"] = f"gh[{box}] = tanh({names['x2']} + gr[i0,i1] * ({names['h2']}))"
        elif kind == "GRU":
            names["reset"] = f"gh[{box}] = tanh({names['x2']} + {names['h2'].replace('h[i0,r1]', 'gr[i0,r1] * h[i0,r1]')})"
        begin = lambda t: f"{t.name}[{':,' * 0}{'0' if not layout else ':,0'}]" if whole(n, t) else ""
        text = [f"var h = {f'clone({begin(first_h)})' if first_h else f'zeros {x.kind.text}[{batch},{hidden}]'}"]
        if kind == "LSTM":
            text.append(f"var c = {f'clone({begin(first_c)})' if first_c else f'zeros {x.kind.text}[{batch},{hidden}]'}")
        text += [f"var {out.name} = zeros {x.kind.text}[{steps},{batch},{hidden}]", f"for t in 0..{steps} {{"]
        text += ["  " + line.format(**names) for line in lines] + [f"  {out.name}[t] = h", "}"]
        return "\n".join(text)

    if n.graph.names & {"h", "c", "t", "gi", "gf", "gz", "gr", "gh"} - {"h", "c", "t"}:
        raise NotExpressible("two recurrent layers in a model")
    n.graph.names |= {"h", "c", "t", "gi", "gf", "gz", "gr", "gh"}
    h, c = n.graph.tensor("h_", x.kind, (batch, hidden)), n.graph.tensor("c_", x.kind, (batch, hidden))
    h.name, c.name = "h", "c"
    out = n.graph.statements([("out", x.kind, (steps, batch, hidden))], lambda out: body(out, h, c))[0]
    h.statement = c.statement = ""
    h.reads, c.reads = {out}, {out}
    if lengths and any(v != steps for v in n.known(4)):
        raise NotExpressible("recurrent layers over sequences of different lengths")
    y = n.graph.define(x.kind, (batch, steps, 1, hidden), lambda b, t, _, j: out(t, b, j), n.name) if layout else n.graph.define(x.kind, (steps, 1, batch, hidden), lambda t, _, b, j: out(t, b, j), n.name)
    last = lambda t, name: n.graph.define(x.kind, (batch, 1, hidden) if layout else (1, batch, hidden), (lambda b, _, j: t(b, j)) if layout else (lambda _, b, j: t(b, j)), name)
    return [y, last(h, "Y_h")] + ([last(c, "Y_c")] if kind == "LSTM" else [])
