"""Makes a bundle of two ops and looks at it without a GPU: python3 test_bundle.py BUILD_FOLDER. Standard library only."""
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def call(command, fails=False):
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{command} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


# Every function is called on CUDA's driver of tests/fake_cuda, which looks at the arguments of launches and runs nothing.
CALLS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import library
described = library.bundle()["ops"]["dense_gelu"]
class Control(ctypes.Structure):
    _fields_ = [("state", ctypes.c_void_p), ("reset", ctypes.c_void_p), ("primary", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)),
                ("new_context", ctypes.c_void_p), ("make_current", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("new_stream", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)), ("capture", ctypes.c_void_p),
                ("allocate", ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int64))]
find = ctypes.CDLL(sys.argv[2]).fake_cuda_control
find.restype = ctypes.POINTER(Control)
driver = find().contents
context = driver.primary(0)
driver.make_current(context)
stream = driver.new_stream(context)
op = library.Library("dense_gelu", described)
names = {t for side in described["sides"].values() for t in side["takes"]}
pointers = {t: driver.allocate(context, 4 * op.elements(t)) for t in names}
stash = driver.allocate(context, op.stash_bytes)
for side in described["sides"]:
    op.call(side, stream, pointers, stash)
host = ctypes.create_string_buffer(16)
try:
    op.call("infer", stream, {**pointers, "x": ctypes.addressof(host)}, stash)
except library.Failed as refused:
    print(refused)
"""


def main(build):
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/carried"
        call([HERE / "make", "--build", build, "--ops", "dense_gelu,adam_step", "--engine", "--out", out])
        text = call([f"{out}/run", "--dry-run"])
        # The stash of a dense layer is what goes into the gelu: 512 x 1024 floats.
        line = next(l for l in text.splitlines() if l.startswith("dense_gelu"))
        assert "3 functions; stash" in line, line
        assert int(line.split("stash ")[1].split()[0]) >= 4 * 512 * 1024, line
        assert "adam_step: 1 functions" in text, text
        fake = f"{build}/tests/libfake_cuda.so"
        text = call(["env", f"XHAT_CUDA_LIBRARY={fake}", sys.executable, "-B", "-c", CALLS, out, fake])
        assert "dense_gelu_cuda_infer: status 8: " in text, text  # memory of the host
        # What is not there is said.
        (Path(out) / "lib" / "adam_step.so").unlink()
        assert "adam_step.so" in call([f"{out}/run", "--dry-run"], fails=True)
        assert "has no op silu" in call([f"{out}/run", "--ops", "silu", "--dry-run"], fails=True)
        # The engine beside it runs with the libraries that came along.
        engine = ["env", f"LD_LIBRARY_PATH={out}/engine/lib"]
        each = [*engine, sys.executable, "-B", f"{out}/engine/each_op.py"]
        op = Path(folder) / "ops.xh"
        op.write_text("# bench: N=64\nop twice(x: f32[N]) -> (y) { y[i] = 2*x[i] }\nop kink(x: f32[N]) -> (y) { y[i] = floor(x[i])*x[i] }\n")
        assert "2 ops, 0 failed" in call([*each, "check", f"{out}/engine/xhat", op, "--target", "cpu"])
        text = call([*each, "bench", f"{out}/engine/xhat", op, "--target", "cpu", "--jobs", "1"])
        assert "twice forward: y" in text and "2 ops, 0 failed" in text, text
        op.write_text("op wrong(x: f32[N]) -> (y) { y[i] = x[i] + }\n")
        assert "1 ops, 1 failed" in call([*each, "check", f"{out}/engine/xhat", op, "--target", "cpu"], fails=True)
    print("the bundle is as it should be")


if __name__ == "__main__":
    main(sys.argv[1])
