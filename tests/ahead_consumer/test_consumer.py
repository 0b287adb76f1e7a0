#!/usr/bin/env python3
"""test_consumer.py BUILD: installs xhat from its build folder, builds the consumer project against it, and runs it on every
processor level. What it computes must be, bit by bit, what `xhat run` computes on that level. The installed tree itself is looked at by
tests/packages/installed.py."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCE.parent / "packages"))
import installed  # noqa: E402
BUILD = pathlib.Path(sys.argv[1]).resolve()
MOST_BYTES = 2_000_000  # of the library of a BatchNorm for three levels and CUDA


def call(*command, env=None, fine=(0,)):
    done = subprocess.run([str(c) for c in command], env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode not in fine:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}")
    return done


def data(path):
    """Shape as text, and the bytes of the elements."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[8:10], "little")
    head = eval(raw[10:10 + size].decode())
    return head["shape"], raw[10 + size:]


def compare(tool, folder, level):
    op = folder.name.rsplit("_", 1)[0]
    given = {p.stem: p for p in folder.glob("*.npy") if not p.stem.startswith("out_")}
    command = [tool, "run", SOURCE / "ops.xh", "--op", op, "--threads", "2", "--out", folder / "run", "--dy", f"y={given.pop('dy')}"]
    command += [f"--in={name}={path}" for name, path in given.items()]
    if op == "batch_norm":
        command += ["--set", "eps=1e-5"]
    call(*command, env={"XHAT_CPU_LEVEL": level})
    results = list(folder.glob("out_*.npy"))
    assert results, folder
    for result in results:
        if data(result) != data(folder / "run" / result.name.removeprefix("out_")):
            sys.exit(f"{level}: {folder.name}: {result.stem} differs from what xhat run computes")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        prefix, build = work / "prefix", work / "build"
        call("cmake", "--install", BUILD, "--prefix", prefix)
        manifest = work / "manifest.txt"
        manifest.write_text((BUILD / "install_manifest.txt").read_text())
        installed.check_files(prefix)
        installed.check_versions(prefix, SOURCE.parent.parent)
        installed.check_manual(prefix)
        installed.check_pkg_config(prefix, work)
        tool = prefix / "bin" / "xhat"
        call("cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
        call("cmake", "--build", build)
        for program in ("consumer", "c_consumer"):
            linked = call("ldd", build / program).stdout
            assert "Halide" not in linked and "fmt" not in linked and "isl" not in linked, linked
            assert "halide_error" not in call("nm", build / program).stdout
        size = (build / "xhat" / "batch_norm" / "libbatch_norm.a").stat().st_size
        assert size < MOST_BYTES, size
        call(build / "c_consumer")
        best = call(build / "consumer", work / "best").stdout.split()[-1]
        levels = ["sse41", "avx2", "avx512"]
        for level in levels[:levels.index(best) + 1]:
            said = call(build / "consumer", work / level, env={"XHAT_CPU_LEVEL": level}).stdout
            assert said.split()[-1] == level, said
            for folder in sorted((work / level).iterdir()):
                if level == best or folder.name.endswith("_33"):
                    compare(tool, folder, level)
        generator, = build.glob("xhat_generator_*")  # one, for both ops of ops.cpp
        assert call(generator, "--list").stdout.split() == ["rms_norm", "polynomial"]
        for arguments, says in {"-o lib": "several ops: polynomial, rms_norm", "-o lib --op tanh": "there is no op 'tanh'",
                                "-o lib --op rms_norm --strided z": "there is no array z", "--op rms_norm": "-o DIR"}.items():
            said = call(generator, "--support", prefix / "lib" / "libxhat_ahead.a", *arguments.split(), fine=(2,)).stdout
            assert says in said, said
        unknown = call(build / "consumer", work / "none", env={"XHAT_CPU_LEVEL": "avx3"}, fine=(3,)).stdout
        assert "XHAT_CPU_LEVEL asks for avx3" in unknown, unknown
        installed.check_uninstall(manifest, prefix, SOURCE.parent.parent)


main()
