"""The engines that can take part, and a process of one of them, spoken to over pipes."""
import json
import os
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

from ops import SUITE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
clock = time.monotonic

PROGRAMS = {"xhat": "xhat_peer", "eigen": "eigen_peer", "halide": "halide_peer", "hand": "hand_peer"}  # build/bench/<program>
PYTHON = ["jax", "jax-remat", "jax-native", "torch-compile", "torch-native", "torch-eager", "torch-native-compile"]
ENGINES = [*PROGRAMS, *PYTHON]
USUAL = ["xhat", "jax", "torch-compile", *(["torch-eager"] if SUITE else ["torch-native", "halide", "eigen"])]
if SUITE and not (HERE / SUITE / "in_jax.py").exists():
    USUAL.remove("jax")

# glibc: one heap that is kept and reused, with huge pages. An engine that returns new arrays from every call is at its
# best so; with the C library's defaults it pays for fresh pages with every large result.
KEEPING_ALLOCATOR = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736:"
                     "glibc.malloc.top_pad=268435456:glibc.malloc.arena_max=1")


def command_of(engine, build):
    if "=" in engine:  # NAME=COMMAND
        return shlex.split(engine.split("=", 1)[1])
    if engine in PROGRAMS:
        return [str(Path(build) / "bench" / PROGRAMS[engine]), *([str(HERE / SUITE / f"{SUITE}.xh")] if SUITE else [])]
    return [sys.executable, str(HERE / "worker.py"), engine]


def environment(threads, allocator, cache):
    """Every library is told the threads in the variable it reads; compile caches are those of this run."""
    env = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    if allocator == "keeping":
        env["GLIBC_TUNABLES"] = KEEPING_ALLOCATOR
    for name in ("COMPARE_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC", "HL_NUM_THREADS"):
        env[name] = str(threads)
    env.update(CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2", PYTHONWARNINGS="ignore",
               PYTHONDONTWRITEBYTECODE="1", TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor",
               TORCHINDUCTOR_FX_GRAPH_CACHE="0", TORCHINDUCTOR_AUTOGRAD_CACHE="0", XDG_CACHE_HOME=f"{cache}/xdg")
    return env


class Process:
    """Started when first needed, and again after it died or was stopped for taking too long."""

    def __init__(self, name, command, env, log):
        self.name, self.command, self.env, self.log = name, command, env, log
        self.process = self.hello = None

    def ready(self):
        if self.process is None:
            try:
                self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                stderr=self.log)
            except OSError as e:
                return {"error": str(e)}
            self.hello = self.read(180)
        return self.hello

    def ask(self, line, limit_s=120):
        hello = self.ready()
        if "error" in hello:
            return hello
        try:
            self.process.stdin.write((line + "\n").encode())
            self.process.stdin.flush()
        except OSError as e:
            self.stop()
            return {"error": str(e)}
        return self.read(limit_s)

    def read(self, limit_s):
        end, line = clock() + limit_s, b""
        while not line.endswith(b"\n"):
            left = end - clock()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.stop()
                return {"error": f"no answer in {limit_s:.0f} s"}
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                status, self.process = self.process.wait(), None
                return {"error": f"ended with status {status}"}
            line += chunk
        return json.loads(line)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None
