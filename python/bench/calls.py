"""What a call costs beside its work: an op of 64 elements, one thread, from C++, Python, PyTorch and JAX, in turns; the least of 9 runs each.

    PYTHONPATH=build/python .deps/compare-venv/bin/python python/bench/calls.py
"""
import pathlib
import re
import subprocess
import time

import numpy as np

import xhat

CALLS, ROUNDS = 20000, 9
op = xhat.op("op f(x: f32[N]) -> (y) { y[i] = x[i]*x[i] }", threads=1)
x, y = np.ones(64, np.float32), np.empty(64, np.float32)
rows = {"op(x), NumPy": lambda: op(x), "op(x, out=y), NumPy": lambda: op(x, out=y), "op.forward(x), NumPy": lambda: op.forward(x)}

try:
    import torch

    import xhat.torch

    t, tg, f = torch.ones(64), torch.ones(64, requires_grad=True), xhat.torch.custom_op(op)
    rows |= {"op(t), PyTorch": lambda: op(t), "custom_op(t)": lambda: f(t), "custom_op(t), recorded": lambda: f(tg),
             "torch.ops.xhat, by the dispatcher": lambda: f.inference.overload(t), "t*t, PyTorch's own": lambda: t * t,
             "t*t, PyTorch's own, recorded": lambda: tg * tg}
except ImportError:
    pass
try:
    import jax

    import xhat.jax

    j, g, own = jax.numpy.ones(64), jax.jit(xhat.jax.op(op)), jax.jit(lambda j: j * j)
    rows |= {f"jit of xhat.jax.op, {xhat.jax.backend}": lambda: g(j).block_until_ready(), "jit of j*j, JAX's own": lambda: own(j).block_until_ready()}
except ImportError:
    pass


def from_cpp():
    """The same op from C++, bench/call_bench.cpp; None where it is not built."""
    program = pathlib.Path(__file__).parents[2] / "build/bench/xhat_bench"
    if not program.exists():
        return None
    said = subprocess.run([program, "--benchmark_filter=call/64"], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"call/64_elements\s+([\d.]+) ns", said)[1]) / 1e3


def once(call):
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS * 1e6


least = dict.fromkeys(rows, float("inf"))
cpp = []
for _ in range(ROUNDS):
    cpp.append(from_cpp())
    for name, call in rows.items():
        least[name] = min(least[name], once(call))
if cpp[0] is not None:
    print(f"{min(cpp):7.2f} us  from C++")
for name, us in least.items():
    print(f"{us:7.2f} us  {name}")
