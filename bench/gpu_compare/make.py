"""Makes the bundle: OUT/lib/<op>.so for each op at the sizes of ../compare/ops.py, OUT/bundle.json with what they are called with, and
the scripts. Started by the script `make` beside it. Standard library only."""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMPARE = ROOT / "bench" / "compare"
sys.path.insert(0, str(COMPARE))
if "--suite" in sys.argv:
    os.environ["COMPARE_SUITE"] = sys.argv[sys.argv.index("--suite") + 1]
import annotated  # noqa: E402
from ops import OPS, SUITE, shape_of  # noqa: E402

SCRIPTS = ["run", "gpu_run.py", "gpu_engines.py", "gpu_launches.py", "gpu_report.py", "library.py"]
SHARED = ["ops.py", "annotated.py", "data.py", "worker.py", "torch_engine.py", "jax_engine.py", "report.py", "roof.py"]  # of ../compare
SIDES = ("infer", "forward", "backward")
LEVEL = "avx2"  # of the code for processors, which libraries always have and nobody calls here


def arguments():
    p = argparse.ArgumentParser(prog="bench/gpu_compare/make", description=__doc__)
    p.add_argument("--out", default="gpu_compare", help="the folder; what it held is lost")
    p.add_argument("--ops", default=",".join(n for n in OPS if source(n).exists()), help="comma-separated; default: all that xhat has")
    p.add_argument("--suite", help="the ops of that folder of bench/compare instead, such as kernelbench")
    p.add_argument("--engine", action="store_true", help="also the tool and the tests of kernels, with the libraries that they need: OUT/engine")
    p.add_argument("--build", default=str(ROOT / "build"), help="the build folder")
    return p.parse_args()


def source(name):
    return COMPARE / SUITE / f"{SUITE}.xh" if SUITE else ROOT / "bench" / "peer_ops" / f"{name}.xh"


def dims_of(op):
    """The values of an op's dims: a suite says them; else where a parameter's extent is one, or a multiple of one."""
    if SUITE:
        return annotated.sizes(SUITE)[op.name]
    text = source(op.name).read_text()
    parameters = re.search(r"\bop\s+\w+\s*\((.*?)\)\s*->", text, re.S)[1]
    dims = {}
    for name, extents in re.findall(r"(\w+)\s*:\s*\w+\[([^\]]*)\]", parameters):
        shape = shape_of(op.inputs[name])
        for extent, size in zip([e.strip() for e in extents.split(",")], shape, strict=True):
            m = re.fullmatch(r"(?:(\d+)\s*\*\s*)?([A-Za-z]\w*)", extent)
            if m and dims.setdefault(m[2], size // int(m[1] or 1)) * int(m[1] or 1) != size:
                raise ValueError(f"{op.name}: {extent} is not {size} where {m[2]} is {dims[m[2]]}")
    return dims


def call(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def parameters(header, name, side):
    """What the GPU's function of that side takes, in order, between dims, stream and stash; by value: of which type."""
    m = re.search(rf"int {name}_cuda_{side}\(([^)]*)\);", header)
    if not m:
        return None
    declared = [re.fullmatch(r"\s*(.*?)(\w+)", p) for p in m[1].split(",")]
    words = [d[2] for d in declared]
    return {"takes": [w for w in words if w not in ("dims", "stream", "stash")], "stash": "stash" in words,
            "values": {d[2]: d[1].strip() for d in declared if "*" not in d[1]}}


def bytes_of_plan(xhat, path, asked):
    """What the kernels of each direction read and write, each tensor once per kernel."""
    text = call([xhat, "explain", path, "--json", "--target", "cuda", "--libraries", "off", *asked])
    found = json.loads(text)
    return {side: {"bytes": sum(k["bytes_unavoidable"] for k in found[side]["kernels"]), "kernels": found[side]["kernel_count"]}
            for side in ("forward", "backward") if found[side]["kernels"]}


def compile_op(op, a, out, scratch):
    xhat = str(Path(a.build) / "xhat")
    dims = dims_of(op)
    asked = [*(["--op", op.name] if SUITE else []), "--dims", ",".join(f"{k}={v}" for k, v in dims.items())] + (["--wrt", ",".join(op.diff)] if op.diff else [])
    call([xhat, "build", source(op.name), "--name", op.name, "--target", "cpu,cuda", *asked, "--levels", LEVEL, "-o", scratch,
          *([] if op.diff else ["--infer-only"])])
    archive, so = Path(scratch) / f"lib{op.name}.a", out / "lib" / f"{op.name}.so"
    call(["c++", "-shared", "-o", so, "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-static-libstdc++", "-static-libgcc",
          "-lpthread", "-ldl", "-s"])
    header = (Path(scratch) / f"{op.name}.h").read_text()
    fields = re.search(rf"typedef struct {op.name}_dims {{(.*?)}}", header, re.S)
    return {"dims": dims, "fields": re.findall(r"int64_t (\w+);", fields[1]) if fields else [],
            "sides": {s: p for s in SIDES if (p := parameters(header, op.name, s)) is not None},
            "plan": bytes_of_plan(xhat, source(op.name), asked), "so_bytes": so.stat().st_size}


def pack_engine(a, out):
    """The tool and the tests, stripped, and what they load that is not part of every system."""
    engine = out / "engine"
    (engine / "lib").mkdir(parents=True)
    for program in ("xhat", "tests/xhat_kernel_tests", "examples/gpu"):
        made = Path(a.build) / program
        call(["strip", "-o", engine / made.name, made])
        for name, path in re.findall(r"(\S+) => (/\S+)", call(["ldd", made])):
            if not re.match(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so", name):
                call(["strip", "-o", engine / "lib" / name, path])
    shutil.copy(HERE / "each_op.py", engine / "each_op.py")


def main():
    a = arguments()
    out = Path(a.out)
    if out.exists() and not (out / "bundle.json").exists() and any(out.iterdir()):
        sys.exit(f"{out} is not empty and no bundle; give another --out")
    shutil.rmtree(out, ignore_errors=True)
    (out / "lib").mkdir(parents=True)
    (out / "compare").mkdir()
    bundle = {"suite": SUITE, "made": time.strftime("%Y-%m-%d"), "ops": {}}
    keep = lambda: (out / "bundle.json").write_text(json.dumps(bundle, indent=1) + "\n")
    keep()  # a folder of ours, should this be interrupted
    for i, name in enumerate(names := a.ops.split(",")):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            bundle["ops"][name] = compile_op(OPS[name], a, out, scratch)
        print(f"[{i + 1}/{len(names)}] {name}: {bundle['ops'][name]['so_bytes'] >> 10} KiB, {time.monotonic() - start:.0f} s", flush=True)
    for script in SCRIPTS:
        shutil.copy(HERE / script, out / script)
    for script in SHARED:
        shutil.copy(COMPARE / script, out / "compare" / script)
    if SUITE:
        shutil.copytree(COMPARE / SUITE, out / "compare" / SUITE, ignore=shutil.ignore_patterns("__pycache__"))
    if a.engine:
        pack_engine(a, out)
    keep()
    print(f"wrote {out}; carry it to a machine with an NVIDIA GPU, and start {out.name}/run there")


if __name__ == "__main__":
    main()
