"""OUT.md: what gpu_run.py measured. Standard library only."""
from report import geometric_mean, number, percent, table

# What of a sample is held against which bytes of the plan: of an op without gradients, inference.
DIRECTIONS = {"forward": ("fwd", "infer"), "backward": ("bwd",), "both": ("total",)}
BOUND = 0.85   # share of the copy bandwidth that ops bound by memory are to reach
AHEAD = 1.2    # geometric mean over torch.compile, backward
BEHIND = 0.9   # nothing is to be slower than that


class Measured:
    def __init__(self, result):
        self.result, self.ops = result, list(result["ops"])
        self.engines = [e for e in result["engines"] if any("infer" in self.row(n, e) for n in self.ops)]

    def row(self, op, engine):
        return self.result["ops"][op].get(engine, {})

    def ms(self, op, engine, direction):
        row = self.row(op, engine)
        return next((row[phase]["median"] for phase in DIRECTIONS[direction] if phase in row), None)

    def plan_bytes(self, op, direction):
        plan = self.result["plan"][op]
        sides = ("forward", "backward") if direction == "both" else (direction,)
        return sum(plan[s]["bytes"] for s in sides) if all(s in plan for s in sides) else None

    def share(self, op, direction):
        """Of the copy bandwidth, by the bytes that xhat's kernels must read and write."""
        ms, moved = self.ms(op, "xhat", direction), self.plan_bytes(op, direction)
        return moved / ms / 1e6 / self.result["copy_gbps"] if ms and moved else None

    def ahead(self, op, direction, other="torch-compile"):
        """The other engine's time over xhat's."""
        mine, theirs = self.ms(op, "xhat", direction), self.ms(op, other, direction)
        return theirs / mine if mine and theirs else None


def markdown(result):
    m = Measured(result)
    return "\n".join([*heading(result), *bars(m), *(line for d in DIRECTIONS for line in times(m, d)), *errors(m), *left_out(m)]).rstrip() + "\n"


def heading(r):
    versions = ", ".join(f"{k} {v['version']}" for k, v in r["engines"].items() if "version" in v)
    return ["# xhat on a GPU, beside other engines", "",
            f"{r['date']}. {r['device']}, CUDA {r['driver']}; copies at {r['copy_gbps']:.0f} GB/s. {r['rounds']} rounds, medians. {versions}. "
            f"xhat's kernels were compiled on {r['made']}, ahead of time.", "",
            "f32 throughout, no TF32. JAX is timed by the clock over many calls, with a warm cache; all others between two events, with a "
            "cold one.", ""]


def bars(m):
    over = lambda values: [v for v in values if v is not None]
    rows = []
    for d in DIRECTIONS:
        shares = over(m.share(n, d) for n in m.ops)
        ahead = {n: m.ahead(n, d) for n in m.ops}
        slower = [f"{n} {number(v)}" for n, v in ahead.items() if v is not None and v < BEHIND]
        rows.append([d, f"{percent(geometric_mean(shares))}", f"{sum(s >= BOUND for s in shares)} of {len(shares)}",
                     number(geometric_mean(over(ahead.values()))), ", ".join(slower) or "none"])
    return ["## Summary", "",
            f"Share: bytes that the plan's kernels must read and write, over time, over the copy bandwidth. Wanted: {percent(BOUND)} for ops bound "
            f"by memory, {AHEAD} times torch.compile on the backward, nothing below {BEHIND}.", "",
            *table(["direction", "share, geometric mean", f"ops at {percent(BOUND)}", "times torch.compile, geometric mean", f"below {BEHIND}"], rows)]


def times(m, direction):
    rows = []
    for n in m.ops:
        if m.ms(n, "xhat", direction) is None:
            continue
        cells = []
        for e in m.engines:
            ms = m.ms(n, e, direction)
            cells.append(number(1e3 * ms) if ms else "–")
        rows.append([n, *cells, percent(m.share(n, direction)), number(m.ahead(n, direction))])
    return [f"## {direction.capitalize()}", "", "Median microseconds.", "",
            *table(["op", *m.engines, "xhat: share of copy", "times torch.compile"], rows)]


def errors(m):
    def cell(row):
        e = row.get("error_vs_f64")
        return f"{e['y']:.0e} / {e['g']:.0e}" if e else "–"
    return ["## Errors", "", "Largest difference to float64 over the largest value, of outputs / of gradients.", "",
            *table(["op", *m.engines], [[n, *(cell(m.row(n, e)) for e in m.engines)] for n in m.ops])]


def left_out(m):
    rows = [[e, "all", v["error"]] for e, v in m.result["engines"].items() if "error" in v]
    rows += [[e, n, (m.row(n, e).get("skip") or m.row(n, e)["error"]).replace("|", "\\|").replace("\n", " ")]
             for e in m.result["engines"] for n in m.ops if "skip" in m.row(n, e) or "error" in m.row(n, e)]
    return ["## Left out", "", *table(["engine", "op", "why"], rows, right=3)] if rows else []
