"""The numbers of the op suite: the same on every machine and for every engine."""
import zlib

import numpy as np


def make_input(op, name, spec):
    """A shape: standard normal. (shape, kind): kind is a float (normal times it), 'unit' (uniform in 0..1), 'square'
    (normal squared), 'cos' or 'sin' (rotary tables), or an int (int32 ids below it)."""
    shape, kind = spec if spec and isinstance(spec[0], tuple) else (spec, None)
    r = np.random.default_rng(zlib.crc32(f"{op}/{name}".encode()))
    if isinstance(kind, int):
        return r.integers(0, kind, shape, dtype=np.int32)
    if kind in ("cos", "sin"):
        angle = np.arange(shape[0])[:, None] / 10000.0 ** (np.arange(shape[1]) / shape[1])
        return getattr(np, kind)(angle).astype(np.float32)
    x = r.random(shape, dtype=np.float32) if kind == "unit" else r.standard_normal(shape, dtype=np.float32)
    x[x == 0] = 1e-3  # at a kink the engines choose different subgradients
    if isinstance(kind, float):
        x *= np.float32(kind)
    return x * x if kind == "square" else x


def write(op, folder):
    """in.<input>.npy and d.<output>.npy, the cotangents."""
    for name, spec in op.inputs.items():
        np.save(f"{folder}/in.{name}.npy", make_input(op.name, name, spec))
    for name, spec in op.outs.items():
        np.save(f"{folder}/d.{name}.npy", make_input(op.name, "d" + name, spec))


def read(op, folder):
    return ({k: np.load(f"{folder}/in.{k}.npy") for k in op.inputs},
            {k: np.load(f"{folder}/d.{k}.npy") for k in op.outs})
