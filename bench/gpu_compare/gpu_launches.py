"""Every launch of the bundle's ops on this machine's GPU, with the time that it took after a write of 256 MB: python3 gpu_launches.py [ops] > FILE

A line each: op, call, the launch's name, us, its blocks, its threads, registers of a thread, bytes of shared memory. Needs PyTorch, whose
profiler measures. Two such files side by side say what a change did."""
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "compare")]

import library  # noqa: E402

library.choose_suite()
import torch  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

import data  # noqa: E402
import gpu_engines  # noqa: E402
from gpu_run import FLUSH_BYTES  # noqa: E402
from ops import OPS  # noqa: E402


def call_all(bundle, names):
    """Calls each function once, between two launches of PyTorch's that spin; returns what was called, in order."""
    flush, called = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda"), []
    for name in names:
        op, engine = OPS[name], gpu_engines.Xhat(bundle)
        engine.load(op, {k: data.make_input(name, k, v) for k, v in op.inputs.items()},
                    {k: data.make_input(name, "d" + k, v) for k, v in op.outs.items()})
        for side in engine.library.sides:
            engine.call(side)  # loads the code
            torch.cuda.synchronize()
            flush.zero_()
            torch.cuda._sleep(100000)
            called.append((name, side))
            engine.call(side)
            torch.cuda._sleep(1000)
            torch.cuda.synchronize()
    return called


def main():
    bundle = library.bundle()
    names = sys.argv[1].split(",") if len(sys.argv) > 1 else list(bundle["ops"])
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        called = call_all(bundle, names)
    with tempfile.TemporaryDirectory() as folder:
        p.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(f"{folder}/trace.json").read_text())["traceEvents"]
    at, inside = -1, False
    for e in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"]):
        if "spin" in e["name"]:
            at, inside = at + (not inside), not inside
        elif inside:
            a = e["args"]
            print(*called[at], e["name"], round(e["dur"], 1), *(f"{k}={a.get(v)}" for k, v in
                  {"blocks": "grid", "threads": "block", "registers": "registers per thread", "shared": "shared memory"}.items()))


if __name__ == "__main__":
    main()
