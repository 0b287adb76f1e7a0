"""Measures xhat's libraries beside PyTorch (eager, compiled, hand-written) and JAX, on the same tensors on this machine's GPU.

Every engine's results are first compared with PyTorch's in float64. Then rounds: each visits all engines, in rotating order, and takes
one sample of each call, between two CUDA events, after a write of 256 MB that empties the cache and a wait that gives the host time to
enqueue. The medians go into OUT.json and OUT.md. --dry-run needs neither a GPU nor PyTorch: it loads the libraries and looks for every function."""
import argparse
import json
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "compare" if (HERE / "compare").exists() else HERE.parent / "compare")]

import library  # noqa: E402

library.choose_suite()
import gpu_report  # noqa: E402
from ops import OPS, size  # noqa: E402

FLUSH_BYTES = 256 << 20  # several times the L2 of an H200
HOST_S = 2e-3            # for the host to enqueue a call: torch.compile's guards and autograd take up to 1 ms before the last launch
CLOCK_HZ = 2e9           # of the wait; no GPU's is much higher
COPY_BYTES = 1 << 30
LARGEST_ERROR = 2e-3     # of results over the largest one, against float64: sums of thousands of f32
JAX_CALLS = 50           # of a sample, on its own stream


def arguments(bundle):
    p = argparse.ArgumentParser(prog="run", description=__doc__.split("\n\n")[0])
    p.add_argument("--ops", default=",".join(bundle["ops"]), help="comma-separated; default: all of the bundle")
    p.add_argument("--engines", default="xhat,torch-eager,torch-compile,torch-native,jax")
    p.add_argument("--rounds", type=int, default=50, help="samples of each call")
    p.add_argument("--out", default="gpu_compare", help="writes OUT.json and OUT.md")
    p.add_argument("--dry-run", action="store_true", help="loads all libraries, looks for all functions, and ends")
    p.add_argument("--report", action="store_true", help="measures nothing: OUT.md anew from OUT.json")
    a = p.parse_args()
    a.ops, a.engines = a.ops.split(","), a.engines.split(",")
    for op in a.ops:
        if op not in bundle["ops"]:
            p.error(f"the bundle has no op {op}; it has {', '.join(bundle['ops'])}")
    return a


def dry_run(bundle, names):
    """Every function is there, and knows the sizes of the suite."""
    for name in names:
        loaded, op = library.Library(name, bundle["ops"][name]), OPS[name]
        sides = {"infer"} | ({"forward", "backward"} if op.diff else set())
        if not sides <= set(loaded.sides):
            raise library.Failed(f"{name}: there is {', '.join(loaded.sides)}, and no {', '.join(sides - set(loaded.sides))}")
        given = {**op.inputs, **op.outs, **{"d" + y: op.outs[y] for y in op.outs}, **{"grad_" + d: op.inputs[d] for d in op.diff}}
        for tensor in {t for side in loaded.described["sides"].values() for t in side["takes"]}:
            if tensor not in given or loaded.elements(tensor) != size(given[tensor]):
                raise library.Failed(f"{name}: {tensor} has {loaded.elements(tensor)} elements, not {size(given.get(tensor, (0,)))}")
        try:  # on nothing at all: refused, and not executed
            loaded.call("infer", None, dict.fromkeys(loaded.described["sides"]["infer"]["takes"]))
        except library.Failed as refused:
            print(f"{name}: {len(loaded.sides)} functions; stash {loaded.stash_bytes} bytes; on nothing: {refused}")
            continue
        raise library.Failed(f"{name}: a call without arguments was not refused")


class Timer:
    def __init__(self):
        import torch
        self.torch, self.flush = torch, torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def ms(self, call):
        """One call between two events; and what it returned."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush.zero_()
        self.torch.cuda._sleep(int(HOST_S * CLOCK_HZ))
        start.record()
        result = call()
        end.record()
        return (start, end), result

    def read(self, events):
        events[1].synchronize()
        return events[0].elapsed_time(events[1])

    def copy_gbps(self):
        """What a copy of a GB reads and writes in a second: the most of 20."""
        a, b = (self.torch.empty(COPY_BYTES // 4, device="cuda") for _ in range(2))
        times = []
        for _ in range(20):
            events, _ = self.ms(lambda: b.copy_(a))
            times.append(self.read(events))
        return 2 * COPY_BYTES / min(times) / 1e6


def host(t):
    return t.detach().cpu().numpy() if hasattr(t, "detach") else t


def errors(engine, op, reference):
    import numpy as np
    if hasattr(engine, "first"):
        ys, grads = engine.first
    else:
        ys = [host(t).copy() for t in engine.infer()]
        grads = [host(t) for t in engine.backward(engine.forward())] if op.diff else []
    worst = {"y": 0.0, "g": 0.0}
    for kind, made, wanted in (("y", ys, reference[0]), ("g", grads, reference[1])):
        if len(made) != len(wanted):
            raise ValueError(f"{len(made)} results instead of {len(wanted)}")
        for x, y in zip(made, wanted):
            worst[kind] = max(worst[kind], float(np.abs(np.asarray(x) - y).max() / max(np.abs(y).max(), 1e-30)))
    return worst


def sample(name, engine, op, timer):
    """Of an engine: ms of each call."""
    if name == "jax":
        return clocked(engine, op)
    infer, _ = timer.ms(engine.infer)
    found = {"infer": timer.read(infer)}
    if op.diff:
        forward, state = timer.ms(engine.forward)
        backward, _ = timer.ms(lambda: engine.backward(state))
        both, _ = timer.ms(lambda: engine.backward(engine.forward()))
        found.update(fwd=timer.read(forward), bwd=timer.read(backward), total=timer.read(both))
    return found


def clocked(engine, op):
    def mean(call):
        engine.wait(call())
        start = time.perf_counter()
        for _ in range(JAX_CALLS):
            last = call()
        engine.wait(last)
        return (time.perf_counter() - start) / JAX_CALLS * 1e3
    found = {"infer": mean(engine.infer)}
    if op.diff:
        state = engine.wait(engine.forward())
        found.update(fwd=mean(engine.forward), bwd=mean(lambda: engine.backward(state)),
                     total=mean(lambda: engine.backward(engine.forward())))
    return found


def load(name, engine, op, ins, cts, reference):
    from worker import Skip
    try:
        engine.load(op, ins, cts)
        row = {"error_vs_f64": errors(engine, op, reference), "samples": [], "saved": engine.saved}
    except Skip as why:
        return {"skip": str(why)}
    except Exception as e:  # recorded; the others go on
        return {"error": f"{type(e).__name__}: {e}"[:300]}
    wrong = {k: v for k, v in row["error_vs_f64"].items() if not v < LARGEST_ERROR}
    return {"error_vs_f64": row["error_vs_f64"], "error": f"wrong results: {wrong}"} if wrong else row


def measure(op, engines, timer, rounds):
    import data
    import torch_engine
    ins = {k: data.make_input(op.name, k, v) for k, v in op.inputs.items()}
    cts = {k: data.make_input(op.name, "d" + k, v) for k, v in op.outs.items()}
    reference = torch_engine.TorchWorker.reference(None, op, ins, cts)
    rows = {name: load(name, e, op, ins, cts, reference) for name, e in engines.items()}
    active = [name for name in engines if "samples" in rows[name]]
    for name in active:  # warm
        for _ in range(3):
            sample(name, engines[name], op, timer)
    for i in range(rounds):
        first = i % max(1, len(active))
        for name in active[first:] + active[:first]:
            rows[name]["samples"].append(sample(name, engines[name], op, timer))
    for name in active:
        samples = rows[name].pop("samples")
        for phase in samples[0]:
            ms = sorted(s[phase] for s in samples)
            rows[name][phase] = {"min": ms[0], "median": statistics.median(ms), "max": ms[-1], "n": len(ms)}
    return rows


def main():
    bundle = library.bundle()
    a = arguments(bundle)
    if a.dry_run:
        return dry_run(bundle, a.ops)
    out = Path(a.out + ".json")
    if a.report:
        Path(a.out + ".md").write_text(gpu_report.markdown(json.loads(out.read_text())))
        return None
    import torch
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU here; run --dry-run looks at the libraries without one")
    import gpu_engines
    timer, engines, versions = Timer(), {}, {}
    for name in a.engines:
        try:
            engines[name] = gpu_engines.make(name, bundle)
            versions[name] = {"version": engines[name].version}
        except ImportError as e:
            versions[name] = {"error": str(e)}
    result = {"date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "driver": torch.version.cuda, "made": bundle["made"],
              "rounds": a.rounds, "copy_gbps": timer.copy_gbps(), "engines": versions, "ops": {},
              "plan": {n: bundle["ops"][n]["plan"] for n in a.ops}}
    for i, name in enumerate(a.ops):
        result["ops"][name] = rows = measure(OPS[name], engines, timer, a.rounds)
        torch.cuda.empty_cache()
        times = (f"{e} " + (f"{r['infer']['median']:.3f}" if "infer" in r else r.get("skip") or r.get("error", "")) for e, r in rows.items())
        print(f"[{i + 1}/{len(a.ops)}] {name}, ms forward: " + "  ".join(times), flush=True)
        out.write_text(json.dumps(result, indent=1) + "\n")
        Path(a.out + ".md").write_text(gpu_report.markdown(result))
    print(f"wrote {a.out}.json and {a.out}.md")
    return None


if __name__ == "__main__":
    main()
