#!/usr/bin/env python3
"""Programs of unseen.xh beside JAX (jit), one thread each, in turn: values first, then least ms of inference and of forward and backward.

    taskset -c 0 .deps/compare-venv/bin/python bench/programs/beside_jax.py [NAME ...]      # some minutes; needs bench/compare/run --setup

The last line has geometric means of JAX's time over ours. Values must agree, or the program is named.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

import in_jax

HERE = Path(__file__).parent
XHAT = HERE.parent.parent / "build" / "xhat"
FILE = HERE / "unseen.xh"
TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32}


def programs():
    """name -> (dims by name, dims as the file has them, [(parameter, type, extents)])"""
    found = {}
    for m in re.finditer(r"# bench: (\S+)\nprog (\w+)\((.*?)\) ->", FILE.read_text()):
        parameters = [(p, t, (e or "").strip("[]")) for p, t, e in re.findall(r"(\w+): (\w+)(\[[^\]]*\])?", m[3])]
        found[m[2]] = (dict(d.split("=") for d in m[1].split(",")), m[1], parameters)
    return found


def inputs_of(dims, parameters, random):
    sizes = {name: int(value) for name, value in dims.items()}
    made = []
    for _, dtype, extents in parameters:
        shape = [eval(e, {}, sizes) for e in extents.split(",")] if extents else []  # noqa: S307: our own file
        if dtype == "i32":
            made.append(random.integers(0, 1 << 20, shape).astype(np.int32))
        else:
            made.append((0.3 * random.standard_normal(shape)).astype(TYPES[dtype]))
    return made


def values_agree(name, spelled, parameters, inputs, wanted):
    with tempfile.TemporaryDirectory() as folder:
        for (parameter, _, _), value in zip(parameters, inputs):
            np.save(f"{folder}/{parameter}.npy", value)
        given = [f"{p}={folder}/{p}.npy" for p, _, _ in parameters]
        command = [XHAT, "run", FILE, "--op", name, "--dims", spelled, "--in", *given, "--out", f"{folder}/out", "--threads", "1"]
        subprocess.run(command, check=True, capture_output=True)
        (made,) = Path(folder, "out").glob("*.npy")
        return np.allclose(np.load(made), wanted, rtol=2e-3, atol=2e-3)


def least_ms(call):
    jax.block_until_ready(call())
    began = time.perf_counter()
    jax.block_until_ready(call())
    times = max(1, int(0.01 / max(time.perf_counter() - began, 1e-6)))
    best = float("inf")
    for _ in range(8):
        began = time.perf_counter()
        for _ in range(times):
            result = call()
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - began) / times)
    return best * 1e3


def jax_ms(function, inputs):
    arrays = [jnp.asarray(x) for x in inputs]
    real = [k for k, x in enumerate(inputs) if x.dtype != np.int32]
    value = jax.jit(function)
    cotangent = jnp.ones_like(value(*arrays))

    @jax.jit
    def both(cotangent, *arrays):
        def of_real(*given):
            whole = list(arrays)
            for k, x in zip(real, given):
                whole[k] = x
            return function(*whole)

        result, pull = jax.vjp(of_real, *[arrays[k] for k in real])
        return result, pull(cotangent)

    return least_ms(lambda: value(*arrays)), least_ms(lambda: both(cotangent, *arrays)), np.asarray(value(*arrays))


def our_ms(name, spelled):
    command = [XHAT, "bench", FILE, "--op", name, "--dims", spelled, "--threads", "1", "--json"]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [figures[f"{phase}_ms"]["min"] for phase in ("infer", "forward", "backward")]


def main(chosen):
    known = programs()
    ratios = []
    print(f"{'program':24} {'JAX':>8} {'xhat':>8} {'times':>6}   {'JAX both':>8} {'xhat':>8} {'times':>6}")
    for name in chosen or known:
        dims, spelled, parameters = known[name]
        inputs = inputs_of(dims, parameters, np.random.default_rng(1))
        if name == "graph_diffusion":  # JAX leaves out what is outside
            inputs[:2] = [x % int(dims["N"]) for x in inputs[:2]]
        forward, both, value = jax_ms(getattr(in_jax, name), inputs)
        ours = [min(pair) for pair in zip(our_ms(name, spelled), our_ms(name, spelled))]
        ratios.append((forward / ours[0], both / (ours[1] + ours[2])))
        agree = "" if values_agree(name, spelled, parameters, inputs, value) else "  other values!"
        print(f"{name:24} {forward:8.3f} {ours[0]:8.3f} {ratios[-1][0]:6.2f}   {both:8.3f} {ours[1] + ours[2]:8.3f} {ratios[-1][1]:6.2f}{agree}", flush=True)
    print("geometric means: {:.2f} forward, {:.2f} both".format(*np.exp(np.log(ratios).mean(0))))


if __name__ == "__main__":
    main(sys.argv[1:])
