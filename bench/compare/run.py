"""Measures engines side by side on the ops of ops.py. Started by the script `run` beside it, which sets up what this needs.

One process per engine, spoken to over pipes, one command a line, one line of JSON for each, so that any program can join
(--peers NAME=COMMAND). Only one process works at a time, and every round visits all engines, so noise hits all alike.

  at its start   {"version": "..."}
  load OP DIR    reads DIR/in.INPUT.npy and DIR/d.OUTPUT.npy, compiles, warms up
                 -> {"compile_s": {"infer", "train"}, "kernels": {"infer", "fwd", "bwd"}, "saved": {"inputs", "outputs", "extra"}}
  check DIR TAG  writes DIR/TAG.y.OUTPUT.npy and DIR/TAG.g.INPUT.npy -> {}
  time MIN_MS    one sample of each phase in ms, averaged over calls for at least MIN_MS -> {"infer", "fwd", "bwd", "total"}
  drop           frees everything -> {}

{"skip": "why"} in answer to load leaves the op out; {"error": "..."} is recorded. Threads: COMPARE_THREADS.
"""
import argparse
import functools
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import data
import machine
import plot
import report
from engines import ENGINES, ROOT, USUAL, Process, clock, command_of, environment
from ops import OPS
from roof import Roof

PHASES = ("infer", "fwd", "bwd", "total")
NOISY = 0.15    # cores kept busy by others, from which on a round is repeated
PAUSE_S = 0.02  # between two engines, for the last one's threads to go to sleep
FEW = 3         # samples that even the slowest engine gets


def arguments():
    p = argparse.ArgumentParser(prog="bench/compare/run", description=__doc__.split("\n\n")[0],
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ops", default=",".join(OPS), help="comma-separated; default: all of ops.py")
    p.add_argument("--peers", default=",".join(USUAL),
                   help=f"comma-separated, or NAME=COMMAND, or 'all'; default: {','.join(USUAL)}; there are {', '.join(ENGINES)}")
    p.add_argument("--rounds", type=int, default=9, help="samples of each phase, at least; fewer where an engine is very slow")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--out", default="compare", help="writes OUT.json, OUT.md, OUT.svg and OUT.log")
    p.add_argument("--update", action="store_true", help="keeps what OUT.json holds of other ops")
    p.add_argument("--report", action="store_true", help="measures nothing: OUT.md and OUT.svg anew from OUT.json")
    p.add_argument("--min-ms", type=float, default=4, help="a sample averages calls over at least this long")
    p.add_argument("--budget-s", type=float, default=9, help="seconds of rounds for one engine on one op, then it gets no more")
    p.add_argument("--compile-limit-s", type=float, default=60, help="for loading one op")
    p.add_argument("--repeat-limit-s", type=float, default=1500, help="past this no round is repeated for noise")
    p.add_argument("--allocator", choices=("keeping", "default"), default="keeping",
                   help="the C library's: keeps its memory, on huge pages (best for engines that return new arrays), or as it comes")
    p.add_argument("--build", default=str(ROOT / "build"), help="the build folder")
    a = p.parse_args()
    a.ops = a.ops.split(",")
    a.peers = ENGINES if a.peers == "all" else a.peers.split(",")
    for op in a.ops:
        if op not in OPS:
            p.error(f"there is no op {op}")
    for peer in a.peers:
        if peer not in ENGINES and "=" not in peer:
            p.error(f"there is no engine {peer}")
    return a


def say(text, passing=False):
    """A passing line is overwritten by the next one, and left out where nobody watches."""
    if sys.stdout.isatty():
        print("\r\033[K" + text, end="" if passing else "\n", flush=True)
    elif not passing:
        print(text, flush=True)


def largest_error(folder, tag, op):
    """max |a - reference| / max |reference|, over the outputs and over the gradients."""
    worst = {"y": 0.0, "g": 0.0}
    for kind, names in (("y", op.outs), ("g", op.diff)):
        for n in names:
            a, expected = np.load(f"{folder}/{tag}.{kind}.{n}.npy"), np.load(f"{folder}/reference.{kind}.{n}.npy")
            if a.shape != expected.shape:
                raise ValueError(f"{kind}.{n} has shape {a.shape} instead of {expected.shape}")
            error = float(np.abs(a - expected).max() / max(np.abs(expected).max(), 1e-30))
            worst[kind] = max(worst[kind], error if math.isfinite(error) else math.inf)
            os.remove(f"{folder}/{tag}.{kind}.{n}.npy")
    return worst


def load(process, op, folder, limit_s, has_reference):
    start = clock()
    row = process.ask(f"load {op.name} {folder}", limit_s)
    row["load_s"] = clock() - start
    if "skip" in row or "error" in row:
        return row
    row["samples"], row["sampling_s"] = [], 0
    checked = process.ask(f"check {folder} {process.name}")
    try:
        if "error" in checked:
            raise ValueError(checked["error"])
        if has_reference:
            row["error_vs_f64"] = largest_error(folder, process.name, op)
    except (ValueError, OSError) as e:
        row["check_failed"] = str(e)
    return row


def sample(op, rows, processes, roofline, a, started):
    """Rounds over the engines in rotating order, and over the machine itself. A round in which other programs used the machine
    counts as a sample, but another is taken for it. Returns the cores that others kept busy, by round, and what the machine could
    do then, by round."""
    active, foreign, quiet = [p for p in processes if "samples" in rows[p.name]], [], 0
    question, limits = "at " + " ".join(map(str, Roof.working_sets(op))), []
    while quiet < a.rounds and len(foreign) < 2 * a.rounds:
        first, busy = len(foreign) % max(1, len(active)), False
        others = machine.ForeignLoad([*processes, roofline])
        now = roofline.ask(question)
        if "error" in now:
            raise SystemExit(f"bench/compare/run: build/bench/roofline: {now['error']}")
        limits.append(now)
        for p in active[first:] + active[:first]:
            row = rows[p.name]
            if "error" in row or len(row["samples"]) >= FEW and row["sampling_s"] > a.budget_s:
                continue
            time.sleep(PAUSE_S)
            start, busy = clock(), True
            answer = p.ask(f"time {a.min_ms}")
            row["sampling_s"] += clock() - start
            if "error" in answer:
                row["error"] = answer["error"]
            else:
                row["samples"].append(answer)
        if not busy:
            break
        foreign.append(round(others.cores(), 2))
        quiet += foreign[-1] < NOISY or clock() - started > a.repeat_limit_s
    return foreign, limits


def statistics_of(row):
    for phase in PHASES:
        ms = sorted(s[phase] for s in row.get("samples", []) if phase in s)
        if ms:
            row[phase] = {"min": ms[0], "median": statistics.median(ms), "max": ms[-1], "n": len(ms)}


def measure(op, processes, reference, roofline, folder, a, started):
    for old in Path(folder).glob("*.npy"):
        old.unlink()
    data.write(op, folder)
    answer = reference.ask(f"reference {folder} reference {op.name}")
    if "error" in answer:
        say(f"{op.name}: no float64 reference: {answer['error']}")
    rows = {}
    for p in processes:
        say(f"{op.name}: {p.name} compiles", passing=True)
        rows[p.name] = load(p, op, folder, a.compile_limit_s, "error" not in answer)
        for trouble in ("error", "check_failed"):
            if trouble in rows[p.name]:
                say(f"{op.name}: {p.name}: {rows[p.name][trouble]}")
    say(f"{op.name}: rounds", passing=True)
    foreign, limits = sample(op, rows, processes, roofline, a, started)
    for p in processes:
        if p.process:
            p.ask("drop")
    for row in rows.values():
        statistics_of(row)
    best = {"roofline": functools.reduce(machine.better, limits), "roofline_median": machine.median(limits)} if limits else {}
    return {"peers": rows, "foreign_cores": foreign, **best}


def save(result, out):
    result["ops"] = {n: result["ops"][n] for n in OPS if n in result["ops"]}
    Path(out + ".json").write_text(json.dumps(result, indent=1) + "\n")
    Path(out + ".md").write_text(report.markdown(result))
    Path(out + ".svg").write_text(plot.svg(result))


def main():
    a, started = arguments(), clock()
    before = json.loads(Path(a.out + ".json").read_text()) if a.update or a.report else {"ops": {}}
    if a.report:
        return save(before, a.out)
    folder = tempfile.mkdtemp(prefix="compare-")
    log = open(a.out + ".log", "w")
    env = environment(a.threads, a.allocator, folder)
    processes = [Process(peer.split("=")[0], command_of(peer, a.build), env, log) for peer in a.peers]
    roofline = Process("roofline", machine.serving(a.build, a.threads), env, log)
    reference = next((p for p in processes if p.name == "torch-eager"),
                     Process("reference", command_of("torch-eager", a.build), env, log))
    try:
        say("roofline of the machine, half a minute", passing=True)
        result = {"machine": machine.describe(), "threads": a.threads, "peers": {}, "ops": before["ops"],
                  "settings": {"rounds": a.rounds, "min_ms": a.min_ms, "allocator": a.allocator,
                               "compile_limit_s": a.compile_limit_s, "date": time.strftime("%Y-%m-%d")},
                  "roofline": machine.roofline(a.build, a.threads)}
        if a.update:
            result["roofline"] = machine.better(result["roofline"], before["roofline"])
            result["peers"] = before["peers"]
        for p in list(processes):
            result["peers"][p.name] = hello = p.ready()
            say(f"{p.name}: " + hello.get("version", "") + (f"not available: {hello['error']}" if "error" in hello else ""))
            if "error" in hello:
                p.stop()
                processes.remove(p)
        for i, name in enumerate(a.ops):
            result["ops"][name] = measured = measure(OPS[name], processes, reference, roofline, folder, a, started)
            times = (f"{k} {r['infer']['min']:.2f}" + (f"/{r['total']['min']:.2f}" if "total" in r else "")
                     for k, r in measured["peers"].items() if "infer" in r)
            say(f"[{i + 1}/{len(a.ops)}, {clock() - started:.0f} s] {name}, ms forward/both: " + "  ".join(times))
            save(result, a.out)
        result["roofline"] = machine.better(result["roofline"], machine.roofline(a.build, a.threads, quick=True))
        result["seconds"] = clock() - started
        save(result, a.out)
        say(f"wrote {a.out}.json, {a.out}.md and {a.out}.svg after {clock() - started:.0f} s")
    finally:
        for p in [*processes, reference, roofline]:
            p.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
