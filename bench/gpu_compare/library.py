"""xhat's libraries of a bundle, called through C. Standard library only: nothing is loaded that only a machine with a GPU has."""
import ctypes
import json
import os
from pathlib import Path

VALUES = {"float": ctypes.c_float, "double": ctypes.c_double, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64}
BUNDLE = Path(__file__).resolve().parent


def choose_suite():
    """Before ops.py is imported: the ops are those of the bundle's suite, or the usual ones where it has none, or is none."""
    suite = bundle()["suite"] if (BUNDLE / "bundle.json").exists() else None
    if suite:
        os.environ["COMPARE_SUITE"] = suite


def bundle():
    return json.loads((BUNDLE / "bundle.json").read_text())


class Failed(Exception):
    """What a call's status meant."""


class Library:
    """One op: its functions for CUDA, at the sizes of the bundle."""

    def __init__(self, name, described):
        self.name, self.described = name, described
        self.so = ctypes.CDLL(str(BUNDLE / "lib" / f"{name}.so"))
        fields = described["fields"]
        self.dims = (ctypes.c_int64 * max(1, len(fields)))(*[described["dims"][f.rstrip("_")] for f in fields])
        self.first = [ctypes.byref(self.dims)] if fields else []
        self.message = self.function("message", ctypes.c_char_p)
        self.sides = {s: self.function(f"cuda_{s}", ctypes.c_int) for s in described["sides"]}
        # Looking at indices in the data would wait for them; PyTorch's kernels check theirs on the device.
        if hasattr(self.so, f"{name}_cuda_trust_data"):
            self.function("cuda_trust_data", ctypes.c_int)(1)
        self.stash_bytes = 0
        if "backward" in self.sides:
            self.stash_bytes = self.function("cuda_stash_bytes", ctypes.c_size_t)(*self.first)

    def function(self, name, result):
        try:
            f = getattr(self.so, f"{self.name}_{name}")
        except AttributeError:
            raise Failed(f"{self.name}.so has no function {self.name}_{name}; make the bundle again") from None
        f.restype = result
        return f

    def elements(self, tensor):
        f = self.function("elements", ctypes.c_int64)
        return f(*self.first, tensor.encode())

    def call(self, side, stream, pointers, stash=None):
        """pointers: by name, integers; of scalars that are given: the number."""
        described = self.described["sides"][side]
        taken = [VALUES.get(described["values"].get(p), ctypes.c_void_p)(pointers[p] or 0) for p in described["takes"]]
        if described["stash"]:
            taken.append(ctypes.c_void_p(stash))
        status = self.sides[side](*self.first, ctypes.c_void_p(stream), *taken)
        if status:
            raise Failed(f"{self.name}_cuda_{side}: status {status}: {(self.message() or b'').decode()}")
