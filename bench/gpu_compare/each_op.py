"""Every op of some files through the tool, several at a time: on a GPU, before anything is trusted there. Standard library only.

    each_op.py check XHAT tests/audit/*.xh      what `xhat check` finds wrong; sizes and seeds are those of the lines `# check:`
    each_op.py bench XHAT bench/cliff_ops/*.xh  kernels, worst first: how many times as long as their bytes take, or a launch; sizes: `# bench:`
"""
import argparse
import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

LAUNCH_MS = 0.012  # a kernel that does nothing, and waiting for it
LONGEST_S = 100    # of one op; sizes that a check chooses itself can take minutes


def arguments():
    p = argparse.ArgumentParser(prog="each_op.py", description=__doc__.split("\n\n")[0])
    p.add_argument("what", choices=("check", "bench"))
    p.add_argument("xhat", help="the tool")
    p.add_argument("files", nargs="+")
    p.add_argument("--target", default="cuda")
    p.add_argument("--jobs", type=int, default=8)
    p.add_argument("--seconds", type=float, default=1e9, help="no op is begun later than that")
    p.add_argument("--gbps", type=float, default=3000, help="of the device's memory")
    return p.parse_args()


def cases(path, what):
    """File, op, and what the tool is told besides."""
    lines = open(path).read().splitlines()
    marked = any(line.startswith(f"# {what}:") for line in lines)  # then ops without such a line are for others to call
    told = []
    for line in lines:
        if line.startswith(f"# {what}:"):
            words = line.split(":", 1)[1].split()
            options = [["--seed", w[5:]] if w.startswith("seed=") else ["--dims", w] for w in words if "=" in w]
            # A size is for all ops that follow, a check for the next one.
            told = ([] if what == "bench" else told) + [[o for pair in options for o in pair]]
        named = re.match(r"(?:op|prog) (\w+)", line)
        if named:
            yield from ((path, named[1], options) for options in told or ([[]] if what == "check" and not marked else []))
            told = told if what == "bench" else []


def run(a, case, end):
    path, op, options = case
    if time.monotonic() > end:
        return case, None, "not begun"
    more = ["--json", "--repeats", "12"] if a.what == "bench" else []
    try:
        done = subprocess.run([a.xhat, a.what, path, "--op", op, "--target", a.target, "--threads", "1", *options, *more],
                              capture_output=True, text=True, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        return case, None, f"took longer than {LONGEST_S} s"
    return case, done if done.returncode == 0 else None, done.stdout + done.stderr


def times_of_the_floor(a, case, done):
    measured = json.loads(done.stdout)
    for side, kernels in measured["kernels"].items():
        for k in kernels:
            ms, floor = k["ms"]["min"], max(k["bytes"] / a.gbps / 1e6, LAUNCH_MS)
            yield ms / floor, f"{ms / floor:7.1f}  {ms:8.3f} ms  {k['bytes'] / 1e6:8.2f} MB  {case[1]} {side}: {k['name']}"


def main():
    a = arguments()
    end, rows, wrong, done_all = time.monotonic() + a.seconds, [], 0, 0
    with ThreadPoolExecutor(a.jobs) as pool:
        for case, done, said in pool.map(lambda c: run(a, c, end), [c for f in a.files for c in cases(f, a.what)]):
            done_all += said != "not begun"
            if done is None and said != "not begun":
                wrong += 1
                kept = [line for line in said.splitlines() if line.strip() and "  ok  " not in line]
                print(f"{case[0]} --op {case[1]} {' '.join(case[2])}", *kept[-14:], sep="\n  ", flush=True)
            if done is not None and a.what == "bench":
                rows.extend(times_of_the_floor(a, case, done))
    for _, text in sorted(rows, reverse=True):
        print(text)
    print(f"{done_all} ops, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
