"""GradBench's evals on xhat, JAX and PyTorch, in one run: board.py --build BUILD_FOLDER [--evals lse,gmm] [--out FILE]. README.md says more."""
import argparse
import math
import os
import statistics
import sys
import time
from pathlib import Path

import data
import oracle
from session import Programs, Session, runs_of

HERE = Path(__file__).resolve().parent


def tools_of(names, build, python, programs):
    """programs: name -> folder with a program for each module."""
    """A process each, all on one core: only one of them works at a time."""
    core = {max(os.sched_getaffinity(0))}
    os.sched_setaffinity(0, core)
    commands = {"xhat": [f"{build}/bench/gradbench_tool"]}
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    peer = [python, str(HERE / "peers.py")]
    return {name: Programs(programs[name]) if name in programs else Session(commands.get(name, [*peer, name]), env) for name in names}


def short(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def measure(tools, module, functions, given, rounds, seconds):
    """(function, tool) -> the least time of all runs; what was wrong, by tool."""
    times, first, problems = {}, {}, {name: [] for name in tools}
    names = list(tools)
    for turn in range(rounds):
        for name in names[turn % len(names):] + names[: turn % len(names)]:
            for function in functions:
                if problems[name]:
                    continue
                answer = tools[name].evaluate(module, function, given, 1, seconds)
                if not answer["success"]:
                    problems[name] = [answer.get("error", "no reason given")]
                    continue
                times[function, name] = min(runs_of(answer) + [times.get((function, name), math.inf)])
                if turn == 0:
                    first[function, name] = answer["output"]
    # Each is held against another engine, and its objective against NumPy besides.
    for function in functions:
        others = [n for n in names if (function, n) in first]
        for name in others:
            judge = next((n for n in ("jax", "torch", "manual", "xhat") if n in others and n != name), None)
            if judge:
                problems[name] += oracle.mismatches(first[function, judge], first[function, name], f"{function} beside {judge}")
    for name in names:
        if (functions[0], name) in first:
            problems[name] += oracle.mismatches(oracle.expected(module, functions[0], given), first[functions[0], name], functions[0])
    return times, problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--python", default=sys.executable, help="one with NumPy, JAX and PyTorch")
    parser.add_argument("--tools", default="xhat,jax,torch")
    parser.add_argument("--programs", metavar="NAME=BIN", action="append", default=[],
                        help="also a tool of GradBench in C++, such as manual=tools/manual/bin, once make has built it")
    parser.add_argument("--evals", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="for each function, in each round")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--out", help="also write the table there")
    arguments = parser.parse_args()
    programs = dict(given.split("=", 1) for given in arguments.programs)
    names = arguments.tools.split(",") + list(programs)
    tools = tools_of(names, arguments.build, arguments.python, programs)
    lines = []

    def say(line):
        print(line, flush=True)
        lines.append(line)

    say(f"{time.strftime('%Y-%m-%d')}, one core of {os.cpu_count()}; least times of {arguments.rounds} rounds; grad/obj: gradient over objective")
    say("")
    say("| eval | size | " + " | ".join(f"{n} obj | {n} grad | grad/obj" for n in names) + " | valid |")
    say("|---|---|" + "---:|" * (3 * len(names)) + "---|")
    means = {}
    wrong = []
    for module, (functions, inputs) in data.board(arguments.small).items():
        if arguments.evals and module not in arguments.evals.split(","):
            continue
        able = {name: tool for name, tool in tools.items() if tool.define(module)["success"]}
        for name in names:
            if name not in able:
                print(f"{name} has no {module}", file=sys.stderr)
        for size, make in inputs.items():
            times, problems = measure(able, module, functions, make(), arguments.rounds, arguments.seconds)
            cells = []
            for name in names:
                objective, gradient = (times.get((f, name)) for f in functions)
                if not objective or not gradient:
                    cells.append("- | - | -")
                    continue
                cells.append(f"{short(objective)} | {short(gradient)} | {gradient / objective:.2f}")
                if not problems[name]:
                    means.setdefault(module, {}).setdefault(name, []).append(math.log(gradient))
            valid = [n for n in able if not problems[n]]
            say(f"| {module} | {size} | " + " | ".join(cells) + f" | {'all' if valid == list(able) else ', '.join(valid)} |")
            for name, found in problems.items():
                for line in found[:3]:
                    wrong.append(f"{module} {size} {name}: {line}")
    # With each other tool: of each eval that both have at all sizes the mean over these, and of such means the mean over evals.
    say("")
    for name in names[1:]:
        shared = [m for m in means.values() if name in m and names[0] in m and len(m[name]) == len(m[names[0]])]
        if not shared:
            continue
        first, other = (statistics.mean(statistics.mean(m[n]) for m in shared) for n in (names[0], name))
        say(f"gradients, geometric mean over {len(shared)} evals: {names[0]} {short(math.exp(first))}, {name} {short(math.exp(other))}, "
            f"{math.exp(other - first):.2f} times {names[0]}")
    if "xhat" in tools and not arguments.evals:
        for module, given in data.DESCENTS.items():
            want, took = getattr(oracle, module)(given), []
            for modes in data.MODES:
                answer = tools["xhat"].evaluate(module, modes, given, 1, arguments.seconds)
                wrong += [f"{module} {modes}: {line}" for line in oracle.mismatches(want, answer["output"])]
                took.append(f"{modes} {short(min(runs_of(answer)))}")
            say(f"{module}, xhat alone: " + ", ".join(took))
    for line in wrong:
        say("not valid: " + line)
    for tool in tools.values():
        tool.close()
    if arguments.out:
        Path(arguments.out).write_text("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
