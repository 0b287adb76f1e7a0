"""The machine: what it is, what it can do at most, and what other programs do on it meanwhile."""
import json
import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path


def describe():
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "unknown processor")
    first_line = lambda command: run(command).partition("\n")[0]
    return {"cpu": cpu, "cores": os.cpu_count(), "caches": re.findall(r"(L\d[di]? cache):\s+(.*)", run(["lscpu"])),
            "kernel": platform.release(), "cxx": first_line([os.environ.get("CXX", "g++"), "--version"]),
            "python": platform.python_version()}


def run(command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout
    except OSError:
        return ""


def roofline(build, threads, quick=False):
    """What roofline.cpp measures."""
    command = [str(Path(build) / "bench" / "roofline"), str(threads)] + ["--quick"] * quick
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def serving(build, threads):
    """The command of a process that says what the machine can do at the moment it is asked."""
    return [str(Path(build) / "bench" / "roofline"), str(threads), "--serve"]


def better(a, b, take=max):
    """The better of two readings of the roofline, cell by cell; of times the smaller."""
    if isinstance(a, dict):
        return {k: better(v, b[k], min if k.endswith("_ms") else take) for k, v in a.items()}
    if isinstance(a, list):
        return [better(x, y, take) for x, y in zip(a, b)]
    return a if isinstance(a, str) else take(a, b)


def median(readings):
    """Of readings of the roofline, cell by cell."""
    first = readings[0]
    if isinstance(first, dict):
        return {k: median([r[k] for r in readings]) for k in first}
    if isinstance(first, list):
        return [median(cells) for cells in zip(*readings)]
    return first if isinstance(first, str) else statistics.median(readings)


class ForeignLoad:
    """The cores that programs other than ours keep busy, from now until it is asked."""

    def __init__(self, processes):
        self.processes = processes
        self.start = self.read()

    def read(self):
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, softirq = [int(x) for x in open("/proc/stat").readline().split()[1:8]]
        own = sum(os.times()[:2])
        for p in self.processes:
            try:
                stat = open(f"/proc/{p.process.pid}/stat").read().rsplit(")", 1)[1].split()
                own += sum(map(int, stat[11:13])) / tick
            except (OSError, AttributeError):
                pass  # not running
        return time.monotonic(), (user + nice + system + irq + softirq) / tick - own

    def cores(self):
        (t0, busy0), (t1, busy1) = self.start, self.read()
        return max(0.0, (busy1 - busy0) / (t1 - t0))
