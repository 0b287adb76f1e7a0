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


def main(build):
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/carried"
        call([HERE / "make", "--build", build, "--ops", "dense_gelu,adam_step", "--out", out])
        text = call([f"{out}/run", "--dry-run"])
        # The stash of a dense layer is what goes into the gelu: 512 x 1024 floats.
        line = next(l for l in text.splitlines() if l.startswith("dense_gelu"))
        assert "3 functions; stash" in line, line
        assert int(line.split("stash ")[1].split()[0]) >= 4 * 512 * 1024, line
        assert "adam_step: 1 functions" in text, text
        # What is not there is said.
        (Path(out) / "lib" / "adam_step.so").unlink()
        assert "adam_step.so" in call([f"{out}/run", "--dry-run"], fails=True)
        assert "has no op silu" in call([f"{out}/run", "--ops", "silu", "--dry-run"], fails=True)
    print("the bundle is as it should be")


if __name__ == "__main__":
    main(sys.argv[1])
