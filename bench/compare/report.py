"""OUT.md: what was measured, as tables. docs/performance.md says what the columns mean."""
from math import exp, log

from ops import OPS
from roof import DIRECTIONS, PHASE, Roof

FEW_SAMPLES = 5  # a least of fewer is marked
NOISY = 0.15     # cores kept busy by others: rounds from there on are listed


def table(head, rows, right=1):
    """Columns from the second (or `right`) on are numbers."""
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return [line(head), line(["---"] * right + ["--:"] * (len(head) - right)), *map(line, rows), ""]


def geometric_mean(values):
    values = list(values)
    return exp(sum(map(log, values)) / len(values)) if values else None


def number(x, unit=""):
    """Three digits that mean something."""
    return "–" if x is None else f"{x:.3g}{unit}" if x < 1000 else f"{x:.0f}{unit}"


def percent(x):
    return "–" if x is None else f"{100 * x:.0f}%"


class Measured:
    """The result of run.py, asked by op, engine and direction. statistic: of the samples, "min" or "median"; of what the machine can
    do, the best of the rounds or the median."""

    def __init__(self, result, statistic="min"):
        self.statistic, beside = statistic, "roofline" if statistic == "min" else "roofline_median"
        self.result, self.ops = result, [n for n in OPS if n in result["ops"]]
        self.rows = {n: result["ops"][n]["peers"] for n in self.ops}
        self.engines = [e for e in result["peers"] if any("infer" in self.rows[n].get(e, {}) for n in self.ops)]
        self.roof = {n: Roof(result["roofline"], result["ops"][n].get(beside)).op(OPS[n]) for n in self.ops}

    def row(self, op, engine):
        return self.rows[op].get(engine, {})

    def ms(self, op, engine, direction):
        return self.row(op, engine).get(PHASE[direction], {}).get(self.statistic)

    def of_roof(self, op, engine, direction):
        ms, least = self.ms(op, engine, direction), self.roof[op].get(direction)
        return least["ms"] / ms if ms and least else None

    def best(self, op, direction, but=None):
        times = [(self.ms(op, e, direction), e) for e in self.engines if e != but]
        return min((t for t in times if t[0]), default=(None, None))

    def ahead(self, op, engine, direction):
        """The best other engine's time over this one's."""
        ms, other = self.ms(op, engine, direction), self.best(op, direction, engine)[0]
        return other / ms if ms and other else None


def markdown(result):
    m = Measured(result)
    return "\n".join([*heading(result), *summary(m), *summary(Measured(result, "median")),
                      *(line for d in DIRECTIONS for line in times(m, d)), *kept(m), *kernels(m), *compile_times(m), *samples(m), *left_out(m), *machine(result), *noise(m)]).rstrip() + "\n"


def heading(result):
    m, s = result["machine"], result["settings"]
    versions = ", ".join(f"{k} {v['version']}" for k, v in result["peers"].items() if "version" in v)
    return ["# Engines side by side", "",
            f"{s['date']}. {m['cpu']}, {m['cores']} cores, {', '.join(' '.join(c) for c in m['caches'])}; {m['cxx']}; "
            f"Python {m['python']}. {result['threads']} threads; {s['rounds']} rounds; allocator: {s['allocator']}. {versions}.", "",
            "docs/performance.md says what the columns mean.", ""]


def summary(m):
    """Geometric means over the ops that an engine has."""
    over = lambda values: [v for v in values if v is not None]
    cell = lambda values: f"{percent(geometric_mean(values))} ({len(values)})"
    rows = []
    for e in m.engines:
        cells = [e]
        for d in ("forward", "both"):
            share = {n: m.of_roof(n, e, d) for n in m.ops}
            cells.append(cell(over(share.values())))
            cells.append(cell(over(v for n, v in share.items() if m.roof[n].get(d, {}).get("bound") == "bytes")))
        for d in ("forward", "both"):
            ahead = over(m.ahead(n, e, d) for n in m.ops)
            cells.append(f"{number(geometric_mean(ahead))} ({sum(v > 1 for v in ahead)} of {len(ahead)})")
        rows.append(cells)
    said = "Share of the roofline, geometric mean (number of ops); and how many times faster than the best other engine of each op (ops "\
           "on which this one is the fastest). Least times, beside the best that the machine did in a round of the op."
    return [*(["## Summary", "", said, ""] if m.statistic == "min" else ["The same by medians, of times and of what the machine did:", ""]),
            *table(["engine", "forward: all ops", "forward: bound by bytes", "both: all ops", "both: bound by bytes",
                    "times best other, forward", "times best other, both"], rows)]


def times(m, direction):
    rows = []
    for n in m.ops:
        if direction not in m.roof[n]:
            continue
        best, engine = m.best(n, direction)
        cells = []
        for e in m.engines:
            ms = m.ms(n, e, direction)
            text = f"{number(ms)} ({percent(m.of_roof(n, e, direction))})" if ms else "–"
            cells.append(f"**{text}**" if e == engine else text)
        ahead = m.ahead(n, "xhat", direction)
        roof = m.roof[n][direction]
        rows.append([n, f"{number(roof['ms'])} {roof['bound']}", *cells, number(ahead)])
    return [f"## {direction.capitalize()}", "", "Least ms (share of the roofline).", "",
            *table(["op", "roofline", *m.engines, "xhat: times best other"], rows)]


def by_engine(m, title, text, cell):
    return [f"## {title}", "", text, "", *table(["op", *m.engines], [[n, *(cell(m.row(n, e)) for e in m.engines)] for n in m.ops])]


def kept(m):
    def cell(row):
        s = row.get("saved")
        return f"{number(s['extra'] / 1e6)} / {number(sum(s.values()) / 1e6)}" if s else "–"
    return by_engine(m, "Bytes kept", "MB from forward to backward: the stash / with the inputs and outputs that backward reads.", cell)


def kernels(m):
    def cell(row):
        k = row.get("kernels") or {}
        return "/".join(str(k[p]) for p in ("infer", "fwd", "bwd") if p in k) or "–"
    return by_engine(m, "Kernels", "Inference / forward / backward.", cell)


def compile_times(m):
    def cell(row):
        c = row.get("compile_s") or {}
        return " / ".join(number(c[p]) for p in ("infer", "train") if p in c) or "–"
    return by_engine(m, "Compile time", "Seconds, for inference / for forward and backward.", cell)


def samples(m):
    def cell(row, phase):
        s = row.get(phase)
        return f"{number(s['min'])} ({number(s['median'])})" + "*" * (s["n"] < FEW_SAMPLES) if s else "–"

    def error(row):
        e = row.get("error_vs_f64")
        return f"{e['y']:.0e} / {e['g']:.0e}" if e else row.get("check_failed", "–")
    rows = [[n, e, *(cell(m.row(n, e), p) for p in ("infer", "fwd", "bwd", "total")), error(m.row(n, e))]
            for n in m.ops for e in m.engines if "infer" in m.row(n, e)]
    return ["## Every engine", "", "Least (median) ms of the samples, * fewer than " f"{FEW_SAMPLES}; "
            "largest difference to float64 over the largest value, of outputs / of gradients.", "",
            *table(["op", "engine", "inference", "forward", "backward", "both", "error"], rows, right=2)]


def left_out(m):
    rows = [[e, "all", hello["error"]] for e, hello in m.result["peers"].items() if "error" in hello]
    for e in m.result["peers"]:
        why = {}
        for n in m.ops:
            row = m.row(n, e)
            if "skip" in row or "error" in row:
                why.setdefault(row.get("skip") or row["error"], []).append(n)
        rows += [[e, ", ".join(names), text.replace("|", "\\|").replace("\n", " ")] for text, names in why.items()]
    return ["## Left out", "", *table(["engine", "ops", "why"], rows, right=3)] if rows else []


def machine(result):
    r = result["roofline"]
    kinds = [k for k in r["sweep"][0] if k != "mib"]
    cells = lambda row: [f"{row[k]:.0f}" for k in kinds]
    rows = [["memory, 1 thread", *cells(r["memory_gbps"]["one"])],
            [f"memory, {r['threads']} threads", *cells(r["memory_gbps"]["all"])],
            *([f"{s['mib']:g} MiB", *cells(s)] for s in r["sweep"])]
    touch = r["first_touch_64MiB_ms"]
    return ["## Machine", "",
            f"{r['isa']}, 1 thread and {r['threads']}: multiply-adds {r['fma_gflops']['one']:.0f} and {r['fma_gflops']['all']:.0f} "
            f"GFLOP/s; exp (a polynomial in vector registers, data in the first cache) {r['exp_per_ns']['one']:.1f} and "
            f"{r['exp_per_ns']['all']:.1f} per ns. First touch of 64 MiB: {touch['small_pages_ms']:.1f} ms in pages of 4 KiB, "
            f"{touch['huge_pages_ms']:.1f} in huge ones. Bandwidth in GB/s:", "", *table(["", *kinds], rows)]


def noise(m):
    cores = {n: m.result["ops"][n]["foreign_cores"] for n in m.ops}
    rows = [[n, f"{sum(x >= NOISY for x in c)} of {len(c)}", f"{max(c):.2f}"] for n, c in cores.items() if c and max(c) >= NOISY]
    return ["## Noise", "", f"Rounds in which other programs kept {NOISY} cores or more busy, and the most cores.", "",
            *table(["op", "rounds", "most"], rows)] if rows else []
