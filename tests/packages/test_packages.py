#!/usr/bin/env python3
"""test_packages.py BUILD: in long runs (XHAT_TEST_LONG=1) makes the .deb and the .tar.gz, unpacks them, and builds a program against each; builds the
same with xhat as add_subdirectory and by FetchContent. Otherwise only configures the latter two. `all` or names of parts behind BUILD ask for these.
`conan` is no part of `all`: it needs Conan 2 (pip install conan), and compiles the engine."""
import os
import pathlib
import sys
import tempfile

import installed
from installed import call

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOURCE = installed.HERE.parent.parent


def project(work, way, *options, build=True):
    folder = work / way
    call("cmake", "-S", installed.HERE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DWAY={way}", f"-DXHAT_SOURCE={SOURCE}", *options)
    if build:
        call("cmake", "--build", folder, "--target", "takes_xhat")
        assert call(folder / "takes_xhat").strip() == "14 6"


def packages(work):
    call("cpack", cwd=BUILD)
    for package in sorted((BUILD / "packages").glob("*")):
        tree = work / package.name
        tree.mkdir()
        if package.suffix == ".deb":
            depends = call("dpkg-deb", "--field", package, "Depends")
            assert "libfmt" in depends and "libisl" in depends, depends
            call("dpkg-deb", "-x", package, tree)
        elif package.suffix == ".gz":
            call("tar", "-xzf", package, "-C", tree)
        else:
            continue
        prefix = next(tree.glob("**/bin/xhat")).parent.parent
        installed.check_files(prefix)
        installed.check_versions(prefix, SOURCE)
        installed.check_manual(prefix)
        installed.check_pkg_config(prefix, work)
        call(prefix / "bin" / "xhat", "check", SOURCE / "examples" / "softmax.xh", "--dims", "N=3,D=5")
    project(work, "find", f"-DCMAKE_PREFIX_PATH={prefix}")


def conan(work):
    os.environ["CONAN_HOME"] = str(work / "conan")
    call("conan", "profile", "detect")
    said = call("conan", "create", SOURCE)
    assert "\n14 6\n" in said, said


def main():
    long = os.environ.get("XHAT_TEST_LONG", "0") not in ("", "0")
    parts = sys.argv[2:] or (["all"] if long else [])
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if os.environ.get("XHAT_TEST_CCACHE") else []
        for way in ("subdirectory", "fetch"):
            build = way in parts or "all" in parts and way == "fetch"  # they compile the same
            project(work, way, *launcher, build=build)
        if "packages" in parts or "all" in parts:
            packages(work)
        if "conan" in parts:
            conan(work)


main()
