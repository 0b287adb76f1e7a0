#!/usr/bin/env python3
"""The stash that `xhat explain` announces beside the one that `xhat bench` holds, in bytes, and the kernels of both.

    bench/explained_stash.py [--xhat build/xhat] [OP...]

for every op of bench/stash_ops at three sizes each: those of the table in docs/stash.md, small ones, and large ones. Ends with 1 if
any two differ. Kernels are compiled on the way, some hundred of them; nothing is timed.
"""
import argparse
import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent / "stash_ops"


def sizes_of(table):
    """The sizes of the table, and two others: small ones that are not all equal, and larger ones."""
    small = {name: 2 + i % 3 for i, name in enumerate(sorted(table))}
    large = {name: 300 if size == 1024 else 5 * size for name, size in table.items()}
    return [table, small, large]


def call(xhat, *arguments):
    done = subprocess.run([xhat, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join([xhat, *arguments])}: {done.stderr}")
    return json.loads(done.stdout)


def kernels(names):
    """Names without finishing steps, which bench times together with their kernels, and without how sweeps of several are joined."""
    once = dict.fromkeys(name.removesuffix("_finish") for name in names)
    return "_".join(once)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--xhat", default="build/xhat")
    parser.add_argument("ops", nargs="*")
    options = parser.parse_args()
    different = 0
    print(f"{'op':20} {'sizes':32} {'explain':>12} {'bench':>12}  kernels")
    for entry in json.loads((FOLDER / "ops.json").read_text()):
        if options.ops and entry["op"] not in options.ops:
            continue
        for sizes in sizes_of(entry["dims"]):
            file, dims = str(FOLDER / (entry["op"] + ".xh")), ",".join(f"{name}={size}" for name, size in sizes.items())
            told = call(options.xhat, "explain", file, "--dims", dims)
            held = call(options.xhat, "bench", file, "--dims", dims, "--repeats", "1")
            ran = {d: [k["name"] for k in held["kernels"][d]] for d in ("forward", "backward")}
            same_kernels = all(kernels(ran[d]) == kernels(k["name"] for k in told[d]["kernels"]) for d in ran)
            same = told["stash_bytes"] == held["stash_bytes"] and same_kernels
            different += not same
            counts = " + ".join(str(len(ran[d])) for d in ran)
            print(f"{entry['op']:20} {dims:32} {told['stash_bytes']:12} {held['stash_bytes']:12}  {counts}"
                  f"{'' if same else '   DIFFERENT'}", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
