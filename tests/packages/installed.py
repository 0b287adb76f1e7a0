"""What an installed tree must have, and what can be done with it. tests/ahead_consumer/test_consumer.py calls this on the tree that it installs;
test_packages.py on what comes out of packages."""
import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
FILES = ("bin/xhat", "include/xhat/xhat.h", "include/xhat/lazy.h", "include/xhat/eigen.h", "include/xhat/dlpack.h", "include/xhat/mdspan.h",
         "include/xhat/runtime/interop/mdspan.h", "share/doc/xhat/LICENSE", "share/doc/xhat/LICENSE.Halide", "share/doc/xhat/LICENSE.viz_page",
         "share/doc/xhat/CHANGELOG.md", "share/man/man1/xhat.1", "share/bash-completion/completions/xhat", "share/zsh/site-functions/_xhat")
LIBRARY_FILES = ("xhat/libHalide.so", "cmake/xhat/xhatConfig.cmake", "pkgconfig/xhat.pc", "libxhat_runtime.a", "libxhat_ahead.a")


def call(*command, **options):
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def library_folder(prefix):
    return next(pathlib.Path(prefix).glob("**/pkgconfig/xhat.pc")).parent.parent


def check_files(prefix):
    prefix = pathlib.Path(prefix)
    for name in FILES:
        assert (prefix / name).is_file(), name
    for name in LIBRARY_FILES:
        assert (library_folder(prefix) / name).is_file(), name


def check_versions(prefix, source):
    """One version in all places, and a section of the changes."""
    version = call(pathlib.Path(prefix) / "bin" / "xhat", "--version").split()[-1]
    assert f"project(xhat VERSION {version} " in (source / "CMakeLists.txt").read_text()
    assert f"\n## {version}" in (source / "CHANGELOG.md").read_text(), f"CHANGELOG.md has no section {version}"
    assert f'"version": "{version}"' in (source / "cmake/vcpkg-port/xhat/vcpkg.json").read_text()
    environment = {**os.environ, "PKG_CONFIG_PATH": str(library_folder(prefix) / "pkgconfig")}
    if shutil.which("pkg-config"):
        assert call("pkg-config", "--modversion", "xhat", env=environment).strip() == version


def check_manual(prefix):
    """Of all subcommands; completion offers them, their options and their files."""
    prefix = pathlib.Path(prefix)
    page = (prefix / "share/man/man1/xhat.1").read_text()
    for word in (".SS xhat explain", ".SS xhat build", "\\-\\-dims", "XHAT_CACHE_DIR", ".SH ENVIRONMENT"):
        assert word in page, word
    if shutil.which("man"):
        said = call("man", "--warnings", "-l", prefix / "share/man/man1/xhat.1", env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
        assert "warning" not in said and "--stash-dtype" in said, said[:400]
    script = prefix / "share/bash-completion/completions/xhat"
    ask = f"source {script}; cd {HERE.parent}/tool; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _xhat; echo \"${{COMPREPLY[@]}}\""
    for words, offers in ((("xhat", "ex"), "explain"), (("xhat", "explain", "--par"), "--pareto"), (("xhat", "bench", "--fuse", ""), "full relay off"),
                          (("xhat", "check", "soft"), "softmax.xh"), (("xhat", "manual", "z"), "zsh")):
        assert call("bash", "-c", ask, "xhat", *words).strip() == offers, words
    if shutil.which("zsh"):
        call("zsh", "-n", prefix / "share/zsh/site-functions/_xhat")


def check_pkg_config(prefix, work):
    """A program is built by one line of the compiler, and runs."""
    if not shutil.which("pkg-config"):
        return
    environment = {**os.environ, "PKG_CONFIG_PATH": str(library_folder(prefix) / "pkgconfig")}
    flags = call("pkg-config", "--cflags", "--libs", "xhat", env=environment).split()
    call(os.environ.get("CXX", "c++"), "-O0", HERE / "main.cpp", "-o", work / "by_pkg_config", *flags)
    assert call(work / "by_pkg_config").strip() == "14 6"


def check_uninstall(manifest, prefix, source):
    call("cmake", f"-DMANIFEST={manifest}", "-P", source / "cmake" / "uninstall.cmake")
    left = [p for p in pathlib.Path(prefix).rglob("*") if not p.is_dir() or p.name == "xhat"]
    assert not left, left
