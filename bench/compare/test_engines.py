"""The engines in C++ speak the protocol and agree: python3 test_engines.py BUILD_FOLDER. Standard library only.

Each op is given to all of them at a small size, of even extents, for schedules of Adams2019 read past odd ones; outputs and
gradients are held against those of xhat. An engine may leave an op out, but not all of them. Peers that are not built are not asked,
unless XHAT_TEST_LONG is set.
"""
import array
import ast
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

N, R, C = (1024,), (64, 96), (96,)
# op -> inputs, outputs
OPS = {
    "tanh": ({"x": N}, {"y": N}),
    "silu": ({"x": N}, {"y": N}),
    "softplus": ({"x": N}, {"y": N}),
    "mish": ({"x": N}, {"y": N}),
    "gelu_tanh_bias": ({"x": R, "b": C}, {"y": R}),
    "swiglu": ({"a": R, "b": R}, {"y": R}),
    "huber": ({"x": N, "t": N}, {"y": N}),
    "bce_with_logits": ({"x": N, "t": N}, {"y": N}),
    "softmax": ({"x": R}, {"y": R}),
    "layer_norm": ({"x": R, "gamma": C, "beta": C}, {"y": R}),
    "rms_norm": ({"x": R, "gamma": C}, {"y": R}),
    "normalize_bgr": ({"x": (4, 3, 8, 16), "mean": (3,), "scale": (3,)}, {"y": (4, 3, 8, 16)}),
    "group_norm": ({"x": (4, 16, 8, 16), "gamma": (16,), "beta": (16,)}, {"y": (4, 16, 8, 16)}),
    "depthwise_conv3x3": ({"x": (4, 8, 16, 24), "w": (8, 3, 3)}, {"y": (4, 8, 16, 24)}),
    "maxpool2x2": ({"x": (4, 8, 16, 24)}, {"y": (4, 8, 8, 12)}),
    "rope": ({"x": (2, 8, 4, 64), "cos": (8, 32), "sin": (8, 32)}, {"y": (2, 8, 4, 64)}),
    "box_blur3x3": ({"x": (2, 40, 64)}, {"y": (2, 40, 64)}),
    "batch_norm_train": ({"x": (4, 8, 8, 16), "gamma": (8,), "beta": (8,)}, {"y": (4, 8, 8, 16)}),
}
TOLERANCE = 2e-5  # of the largest value


def write(path, shape, values):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + array.array("f", values).tobytes())


def read(path):
    data = path.read_bytes()
    end = 10 + int.from_bytes(data[8:10], "little")
    assert ast.literal_eval(data[10:end].decode())["descr"] == "<f4", path
    return array.array("f", data[end:])


def numbers(shape, seed):
    r = random.Random(seed)
    return [r.uniform(-2, 2) for _ in range(math.prod(shape))]


def run(program, commands):
    done = subprocess.run([program], input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, f"{program}: {done.stderr}"
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(commands) + 1 and "version" in answers[0], f"{program} answers {done.stdout}"
    return answers[1:]


def difference(a, expected):
    assert len(a) == len(expected), f"{len(a)} elements instead of {len(expected)}"
    scale = max(map(abs, expected))
    return max((abs(x - y) if math.isfinite(x) else math.inf) for x, y in zip(a, expected)) / scale


def main(build):
    peers = ("eigen", "halide", "hand")
    built = [p for p in peers if "XHAT_TEST_LONG" in os.environ or Path(f"{build}/bench/{p}_peer").exists()]
    failures, compared = 0, dict.fromkeys(built, 0)
    with tempfile.TemporaryDirectory() as root:
        folders = {}
        for op, (inputs, outputs) in OPS.items():
            folders[op] = folder = Path(root) / op
            folder.mkdir()
            for name, shape in inputs.items():
                write(folder / f"in.{name}.npy", shape, numbers(shape, op + name))
            for name, shape in outputs.items():
                write(folder / f"d.{name}.npy", shape, numbers(shape, op + "d" + name))
        loaded = {}
        for engine in ("xhat", *compared):
            commands = [c for op in OPS for c in (f"load {op} {folders[op]}", f"check {folders[op]} {engine}", "time 0", "drop")]
            answers = run(f"{build}/bench/{engine}_peer", commands)
            loaded[engine] = dict(zip(OPS, answers[::4]))
            for op, load, time in zip(OPS, answers[::4], answers[2::4]):
                assert "error" not in load, f"{engine}: {op}: {load}"
                assert "skip" in load or set(time) == {"infer", "fwd", "bwd", "total"}, f"{engine}: {op}: {time}"
        assert not any("skip" in a for a in loaded["xhat"].values()), loaded["xhat"]
        for engine in compared:
            for op, folder in folders.items():
                if "skip" in loaded[engine][op]:
                    continue
                compared[engine] += 1
                for file in sorted(folder.glob("xhat.*.npy")):
                    error = difference(read(folder / file.name.replace("xhat", engine, 1)), read(file))
                    if error > TOLERANCE:
                        failures += 1
                        print(f"{engine}: {op}: {file.name[5:-4]} differs by {error:.1e} of the largest value")
    print(f"compared with xhat's: {compared}")
    sys.exit(failures > 0 or 0 in compared.values())


if __name__ == "__main__":
    main(sys.argv[1])
