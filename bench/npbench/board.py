"""The programs of NPBench in xhat and JAX, in one run: values held against NumPy, gradients against JAX's, then times. Started by the
script `run` beside it."""
import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "compare")]
os.environ["COMPARE_SUITE"] = "npbench"

import numpy as np

from engines import Process, environment
from npbench import data, oracle
from npbench.ops import ALL, PROGRAMS

PAUSE_S = 0.02      # between two engines, for the last one's threads to go to sleep
PHASES = ("infer", "total")


def arguments():
    p = argparse.ArgumentParser(prog="bench/npbench/run", description=__doc__)
    p.add_argument("--programs", default=",".join(ALL), help="comma-separated; default: all of programs/")
    p.add_argument("--but", default="", help="all but these")
    p.add_argument("--rounds", type=int, default=5, help="samples of each time, of which the least counts")
    p.add_argument("--min-ms", type=float, default=4, help="a sample averages calls over at least this long")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tolerance", type=float, default=1e-9, help="largest difference over the largest element")
    p.add_argument("--compile-limit-s", type=float, default=120, help="for loading one program")
    p.add_argument("--build", default=str(ROOT / "build"))
    p.add_argument("--out", help="also write the table there")
    a = p.parse_args()
    a.programs = [n for n in a.programs.split(",") if n not in a.but.split(",")]
    for name in a.programs:
        if name not in ALL:
            p.error(f"there is no program {name}")
    return a


def difference(file, wanted):
    got = np.load(file)
    if got.shape != wanted.shape:
        return f"shape {got.shape} instead of {wanted.shape}"
    if got.size == 0:
        return 0.0
    scale = np.abs(wanted).max()
    return float(np.abs(got.astype(float) - wanted.astype(float)).max() / (scale if scale > 0 else 1))


def checked(program, process, folder, results, tolerance):
    """What is wrong with its values. Its gradients lie in the folder then."""
    answer = process.ask(f"check {folder} {process.name}")
    if "error" in answer:
        return [answer["error"]]
    off = {n: difference(f"{folder}/{process.name}.y.{n}.npy", results[n]) for n in program.outs}
    return [f"{n} is off by {e}" for n, e in off.items() if isinstance(e, str) or not e <= tolerance]


def measure(program, processes, folder, a):
    """Times in ms by engine and phase, seconds of compiling, and what is wrong, by engine."""
    inputs = data.inputs(program)
    results = oracle.results(program, inputs)
    for kind, arrays in (("in", inputs), ("d", data.cotangents(program, results))):
        for name, value in arrays.items():
            np.save(f"{folder}/{kind}.{name}.npy", value)
    Path(folder, "dims.json").write_text(json.dumps(program.sizes))
    wrong, compiling, times, loaded = {}, {}, {p.name: {} for p in processes}, []
    for p in processes:
        start = time.monotonic()
        answer = p.ask(f"load {program.name} {folder}", a.compile_limit_s)
        compiling[p.name] = time.monotonic() - start
        if "error" in answer or "skip" in answer:
            wrong[p.name] = [answer.get("error") or answer["skip"]]
        else:
            wrong[p.name] = checked(program, p, folder, results, a.tolerance)
            loaded.append(p)
    if len(loaded) == 2:
        ours, theirs = (p.name for p in processes)
        for n in program.diff:
            e = difference(f"{folder}/{ours}.g.{n}.npy", np.load(f"{folder}/{theirs}.g.{n}.npy"))
            if isinstance(e, str) or not e <= a.tolerance:
                wrong[ours].append(f"the gradient of {n} is off by {e}")
    for turn in range(a.rounds):
        for p in loaded[::-1] if turn % 2 else loaded:
            time.sleep(PAUSE_S)
            sample = p.ask(f"time {a.min_ms}")
            for phase in PHASES:
                if phase in sample:
                    times[p.name][phase] = min(sample[phase], times[p.name].get(phase, math.inf))
    for p in loaded:
        p.ask("drop")
    return times, compiling, wrong


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def main():
    a = arguments()
    lines, ratios, wrong_lines, compiled = [], {phase: {} for phase in PHASES}, [], {}

    def say(line=""):
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory() as cache, open(os.devnull, "w") as log:
        env = environment(a.threads, "keeping", cache) | {"JAX_ENABLE_X64": "1", "PYTHONPATH": str(HERE.parent)}
        processes = [Process("xhat", [f"{a.build}/bench/xhat_peer", str(PROGRAMS)], env, log),
                     Process("jax", [sys.executable, str(HERE.parent / "compare" / "worker.py"), "jax"], env, log)]
        hello = processes[1].ready()
        if "error" in hello:
            sys.exit(f"bench/npbench/run: {hello['error']}")
        say(f"{time.strftime('%Y-%m-%d')}, JAX {hello['version']}, float64, {a.threads} threads of {os.cpu_count()}; least ms of {a.rounds} rounds; ratio: JAX's time over xhat's")
        say()
        say("| program | xhat value | JAX value | ratio | xhat value + gradient | JAX value + gradient | ratio | compile xhat, JAX (s) | right |")
        say("|---|--:|--:|--:|--:|--:|--:|--:|---|")
        for name in a.programs:
            with tempfile.TemporaryDirectory() as folder:
                times, compiling, wrong = measure(ALL[name], processes, folder, a)
            cells = []
            for phase in PHASES:
                x, j = (times[p.name].get(phase) for p in processes)
                number = lambda t: f"{t:.3g}" if t else "–"
                cells += [number(x), number(j), number(j / x) if x and j else "–"]
                if x and j and not any(wrong.values()):
                    ratios[phase][name] = j / x
            right = "yes" if not any(wrong.values()) else "no"
            for engine, found in wrong.items():
                wrong_lines += [f"{name}: {engine}: {line}" for line in found]
            compiled[name] = compiling
            say(f"| {name} | {' | '.join(cells)} | {compiling['xhat']:.1f}, {compiling['jax']:.1f} | {right} |")
        for p in processes:
            p.stop()
    say()
    for phase, what in zip(PHASES, ("values", "value + gradient")):
        of = ratios[phase]
        if of:
            slow = sorted((n for n in of if of[n] < 1), key=of.get)
            say(f"{what}: geometric mean of {len(of)} ratios {mean(of.values()):.3g}; JAX is faster in {len(slow)}: " + ", ".join(f"{n} {of[n]:.2g}" for n in slow))
    for line in wrong_lines:
        say("wrong: " + line)
    if a.out:
        Path(a.out).write_text("\n".join(lines) + "\n")
    return 1 if wrong_lines else 0


if __name__ == "__main__":
    sys.exit(main())
