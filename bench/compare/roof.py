"""The least time an op can take on the machine, as roofline.cpp measured it."""
from bisect import bisect_left
from math import log

DIRECTIONS = ("forward", "backward", "both")
# What of a sample is held against what: forward alone is inference.
PHASE = {"forward": "infer", "backward": "bwd", "both": "total"}
STREAMS = ("copy", "copy_nt", "triad", "triad_nt")


class Roof:
    """max(bytes / bandwidth, flops / peak of multiply-adds, exponentials / throughput of exp). Bandwidth is the best of copy
    and triad, plain and non-temporal, at the op's own working set (a small op lives in cache); an op that may overwrite
    its inputs is also allowed the update in place.

    beside: what was measured in the rounds of the op itself, at its working sets (run.py); without, the sweep over sizes before
    and after all ops."""

    def __init__(self, measured, beside=None):
        self.flops = (beside["fma_gflops"] if beside else measured["fma_gflops"]["all"]) * 1e9
        self.exps = (beside["exp_per_ns"] if beside else measured["exp_per_ns"]["all"]) * 1e9
        rows = [(r["bytes"], r) for r in beside["at"]] if beside else [(r["mib"] * 2 ** 20, r) for r in measured["sweep"]]
        self.sweep = [(log(size), row) for size, row in sorted(rows, key=lambda r: r[0])]

    def bandwidth(self, working_set, kinds=STREAMS):
        x, sizes = log(max(working_set, 1)), [s for s, _ in self.sweep]
        at = [max(row[k] for k in kinds) * 1e9 for _, row in self.sweep]
        if len(sizes) == 1:
            return at[0]
        right = min(max(bisect_left(sizes, x), 1), len(sizes) - 1)
        left = right - 1
        part = min(1, max(0, (x - sizes[left]) / (sizes[right] - sizes[left])))
        return at[left] + part * (at[right] - at[left])

    def limits_ms(self, moved, working_set, flops, exps, kinds=STREAMS):
        return {"bytes": moved / self.bandwidth(working_set, kinds) * 1e3, "flops": flops / self.flops * 1e3,
                "exp": exps / self.exps * 1e3}

    @staticmethod
    def working_sets(op):
        """Bytes, of all directions."""
        return sorted({op.footprint(False)} | ({op.footprint(True), op.bwd} if op.diff else set()))

    def op(self, op):
        """By direction: the least ms, and what bounds it ("bytes", "flops" or "exp")."""
        def worst(*phases):
            limits = {k: sum(p[k] for p in phases) for k in phases[0]}
            ms = sum(max(p.values()) for p in phases)
            return {"ms": ms, "bound": max(limits, key=limits.get)}

        kinds = STREAMS + ("update",) * ("in place" in op.tags)
        r = {"forward": worst(self.limits_ms(op.fwd, op.footprint(False), op.flops, op.exps, kinds))}
        if op.diff:
            set_ = op.footprint(True)
            r["backward"] = worst(self.limits_ms(op.bwd, op.bwd, op.bwd_flops, op.bwd_exps))
            r["both"] = worst(self.limits_ms(op.fwd + op.stash, set_, op.flops, op.exps),
                              self.limits_ms(op.bwd, set_, op.bwd_flops, op.bwd_exps))
        return r
