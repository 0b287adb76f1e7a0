"""Inputs, made from seeds: normals, unless the program needs others for its results to be tame."""
import zlib

import numpy as np


def factor(r, n):
    """A matrix that eliminations need no pivots for."""
    return r.standard_normal((n, n)) / np.sqrt(n) + 3 * np.eye(n)


def flow(r, s, dt):
    n, m = s["N"], s["M"]
    return {"dx": 2 / (m - 1), "dy": 2 / (n - 1), "dt": dt, "rho": 1.0, "nu": 0.1}


def bins(r, s):
    return {"radius": r.random(s["N"])}


def dense(r, rows, columns):
    return r.standard_normal((rows, columns)) / np.sqrt(rows)


def sparse(r, s):
    row = np.sort(r.integers(0, s["Z"] + 1, s["M"] - 1))
    return {"row": np.concatenate([[0], row, [s["Z"]]]).astype(np.int32), "col": r.integers(0, s["N"], s["Z"], np.int32)}


def cavity(r, s):
    return flow(r, s, 0.001) | {k: 0.1 * r.standard_normal((s["N"], s["M"])) for k in "uvp"}


def channel(r, s):
    return flow(r, s, 0.01) | {k: np.zeros((s["N"], s["M"])) for k in "uvp"} | {"force": 1.0}


def circle(r, s):
    n = s["N"]
    z = np.where(np.arange(s["Z"]) % 2, 0.7, 1.6) * np.exp(2j * np.pi * (np.arange(s["Z"]) + 0.3) / s["Z"])
    return {"hr": r.standard_normal((s["S"] + 1, n, n)) / np.sqrt(n) + 2 * np.eye(n), "hi": r.standard_normal((s["S"] + 1, n, n)) / np.sqrt(n),
            "zr": z.real, "zi": z.imag}


def lenet(r, s):
    return {"conv1": r.standard_normal((5, 5, 1, 6)) / 5, "conv2": r.standard_normal((5, 5, 6, 16)) / 12,
            "w1": dense(r, s["D"], 120), "w2": dense(r, 120, 84), "w3": dense(r, 84, 10)}


def mlp(r, s):
    return {"w1": dense(r, s["C"], s["H0"]), "w2": dense(r, s["H0"], s["H1"]), "w3": dense(r, s["H1"], s["H2"])}


def resnet(r, s):
    c, k = s["C"], s["S"]
    return {"conv1": r.standard_normal((1, 1, c, k)) / np.sqrt(c), "conv2": r.standard_normal((3, 3, k, k)) / np.sqrt(9 * k),
            "conv3": r.standard_normal((1, 1, k, c)) / np.sqrt(k)}


def gram(r, n):
    x = r.standard_normal((n, n)) / np.sqrt(n)
    return x @ x.T + np.eye(n)


OTHERS = {
    "azimint_hist": bins, "azimint_naive": bins,
    "cavity_flow": cavity, "channel_flow": channel,
    "cholesky": lambda r, s: {"a": gram(r, s["N"])},
    "compute": lambda r, s: {"x": 6 * r.standard_normal((s["M"], s["N"])), "a": 4.0, "b": 3.0, "c": 9.0},
    "contour_integral": circle,
    "crc16": lambda r, s: {"data": r.integers(0, 256, s["N"], np.uint8)},
    "deriche": lambda r, s: {"alpha": 0.25, "img": r.random((s["W"], s["H"]))},
    "durbin": lambda r, s: {"r": 0.5 ** np.arange(1.0, s["N"] + 1) + 1e-3 * r.standard_normal(s["N"])},
    "floyd_warshall": lambda r, s: {"path": r.uniform(0.1, 10, (s["N"], s["N"]))},
    "lenet": lenet,
    "lu": lambda r, s: {"a": factor(r, s["N"])}, "ludcmp": lambda r, s: {"a": factor(r, s["N"])},
    "mandelbrot": lambda r, s: {"xmin": -2.25, "xmax": 0.75, "ymin": -1.25, "ymax": 1.25},
    "mlp": mlp,
    "nbody": lambda r, s: {"mass": 20 * r.random(s["N"]) / s["N"], "dt": 0.01, "g": 1.0, "soft": 0.1},
    "nussinov": lambda r, s: {"seq": r.integers(0, 4, s["N"], np.int32)},
    "resnet": resnet,
    "scattering_self_energies": lambda r, s: {"neigh": r.integers(0, s["A"], (s["A"], s["B"]), np.int32)},
    "spmv": sparse,
    "trisolv": lambda r, s: {"l": factor(r, s["N"])},
    "vadv": lambda r, s: {"wcon": r.random((s["I"] + 1, s["J"], s["K"])), "dtr": 3.0},
}


def inputs(program):
    """By name, in the order of the head."""
    r = np.random.default_rng(zlib.crc32(program.name.encode()))
    special = OTHERS.get(program.name, lambda r, s: {})(r, program.sizes)
    made = {}
    for p in program.parameters:
        shape = program.shape(p)
        value = np.asarray(special[p["name"]] if p["name"] in special else r.standard_normal(shape))
        assert value.shape == shape, (program.name, p["name"], value.shape, shape)
        made[p["name"]] = value
    return made


def cotangents(program, results):
    """Of each output; of integers nothing is asked, and zeros stand there."""
    r = np.random.default_rng(zlib.crc32(program.name.encode()) + 1)
    return {k: r.standard_normal(v.shape) if v.dtype.kind == "f" else np.zeros(v.shape) for k, v in results.items()}
