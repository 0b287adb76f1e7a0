"""Recurrent layers, as loops of a `prog`; of one direction, from the first element to the last."""

from graph import NotExpressible
from importer import op
from views import whole

# Of a layer: its number of gates, and what a step computes. {x0}, {h0}, … is what the input and the state give to gate 0, …; {h} and {c} the
# state; {box} the axes b and j with their ranges; {pi}, {po}, {pf} the peepholes.
CELLS = {
    "RNN": (1, ["{h}[{box}] = tanh({x0} + {h0})"]),
    "LSTM": (
        4,
        [
            "{i}[{box}] = sigmoid({x0} + {h0} + {pi} * {c}[b,j])",
            "{f}[{box}] = sigmoid({x2} + {h2} + {pf} * {c}[b,j])",
            "{c}[{box}] = {f}[b,j] * {c}[b,j] + {i}[b,j] * tanh({x3} + {h3})",
            "{h}[{box}] = sigmoid({x1} + {h1} + {po} * {c}[b,j]) * tanh({c}[b,j])",
        ],
    ),
    "GRU": (
        3,
        [
            "{z}[{box}] = sigmoid({x0} + {h0})",
            "{r}[{box}] = sigmoid({x1} + {h1})",
            "{n}[{box}] = tanh({x2} + {reset})",
            "{h}[{box}] = (1 - {z}[b,j]) * {n}[b,j] + {z}[b,j] * {h}[b,j]",
        ],
    ),
}


@op(*CELLS)
def recurrent(n):
    layer = n.proto.op_type
    gates, lines = CELLS[layer]
    x, w, r, bias, lengths, first_h = (n[k] for k in range(6))
    first_c, peepholes = (n[6], n[7]) if layer == "LSTM" else (None, None)
    if n.get("direction", "forward") != "forward" or n.get("clip") is not None or n.get("activations") is not None:
        raise NotExpressible("recurrent layers of two directions or with other activations")
    layout, hidden, size, kind = n.get("layout", 0), r.shape[-1], w.shape[-1], x.kind
    batch, steps = (x.shape[0], x.shape[1]) if layout else (x.shape[1], x.shape[0])
    if lengths and any(v != steps for v in n.known(4)):
        raise NotExpressible("recurrent layers over sequences of different lengths")
    t = n.graph.name("t")

    def body(out, h, c=None):
        names = {k: n.graph.name(k) for k in ("i", "f", "z", "r", "n")}
        names |= dict(box=f"b in 0..{batch}, j in 0..{hidden}", h=h.name, c=c and c.name, pi="0", po="0", pf="0")
        if peepholes:
            names |= {p: peepholes(0, f"j + {k * hidden}") for k, p in enumerate(("pi", "po", "pf"))}
        at = x("b", t, "r0") if layout else x(t, "b", "r0")

        def of_input(gate):
            return f"sum(r0 in 0..{size}: {at} * {w(0, f'j + {gate * hidden}', 'r0')})" + (f" + {bias(0, f'j + {gate * hidden}')}" if bias else "")

        def of_state(gate, factor=""):
            return f"sum(r0 in 0..{hidden}: {factor}{h.name}[b,r0] * {r(0, f'j + {gate * hidden}', 'r0')})" + (
                f" + {bias(0, f'j + {(gate + gates) * hidden}')}" if bias else ""
            )

        names |= {f"x{g}": of_input(g) for g in range(gates)} | {f"h{g}": of_state(g) for g in range(gates)}
        if layer == "GRU":
            names["reset"] = f"{names['r']}[b,j] * ({names['h2']})" if n.get("linear_before_reset", 0) else of_state(2, f"{names['r']}[b,r0] * ")
        begin = lambda first: f"clone({whole(n, first)}.squeeze({1 if layout else 0}))" if first else f"zeros {kind.text}[{batch},{hidden}]"
        text = [f"var {h.name} = {begin(first_h)}"] + ([f"var {c.name} = {begin(first_c)}"] if c else [])
        text += [f"var {out.name} = zeros {kind.text}[{steps},{batch},{hidden}]", f"for {t} in 0..{steps} {{"]
        return "\n".join(text + ["  " + line.format(**names) for line in lines] + [f"  {out.name}[{t}] = {h.name}", "}"])

    state = (kind, (batch, hidden))
    out, *states = n.graph.statements([("out", kind, (steps, batch, hidden)), ("h", *state)] + ([("c", *state)] if layer == "LSTM" else []), body)
    define = n.graph.define
    if layout:
        y = define(kind, (batch, steps, 1, hidden), lambda b, t, _, j: out(t, b, j), n.name)
        return [y] + [define(kind, (batch, 1, hidden), lambda b, _, j, s=s: s(b, j), "last") for s in states]
    y = define(kind, (steps, 1, batch, hidden), lambda t, _, b, j: out(t, b, j), n.name)
    return [y] + [define(kind, (1, batch, hidden), lambda _, b, j, s=s: s(b, j), "last") for s in states]
