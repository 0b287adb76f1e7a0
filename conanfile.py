"""The recipe for Conan 2: `conan create .` builds the engine and the tool, installs them as `cmake --install` does, and builds a program against
the package (tests/conan). docs/installing.md. Dependencies come from the distribution and from cmake/setup.sh, as in every other build."""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

FOLDERS = ("ad", "cmake", "cse", "expr", "fusion", "runtime", "tools", "xhat")
FILES = ("CMakeLists.txt", "CHANGELOG.md", "LICENSE", "xhat.h")
# What cmake/setup.sh has fetched already, by versions that it knows: it fetches what is missing when the package is built.
FETCHED = (".deps/halide-*", ".deps/mpld3-*", ".deps/nanobind-*", ".deps/netron-*")


class Xhat(ConanFile):
    name = "xhat"
    description = "Tensor ops with derived gradients and fused kernels"
    license = "MIT"
    settings = "os", "arch", "compiler", "build_type"
    package_type = "static-library"
    test_package_folder = "tests/conan"

    def set_version(self):
        self.version = re.search(r"project\(xhat VERSION ([0-9.]+)", load(self, os.path.join(self.recipe_folder, "CMakeLists.txt")))[1]

    def export_sources(self):
        for pattern in FILES + tuple(f"{folder}/*" for folder in FOLDERS) + tuple(f"{folder}/*" for folder in FETCHED):
            copy(self, pattern, self.recipe_folder, self.export_sources_folder, excludes=("*.pyc",))

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch != "x86_64":
            raise ConanInvalidConfiguration("Halide's library is published for x86-64 Linux")

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self, generator="Ninja")
        toolchain.cache_variables["XHAT_PYTHON"] = False
        toolchain.cache_variables["XHAT_TESTS"] = False
        toolchain.generate()

    def build(self):
        self.run(os.path.join(self.source_folder, "cmake", "setup.sh"))
        cmake = CMake(self)
        cmake.configure()
        cmake.build(target="xhat")

    def package(self):
        CMake(self).install()

    def package_info(self):
        # The package of CMake's install is what find_package(xhat) finds; Conan makes none of its own.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "xhat")]
        self.buildenv_info.append_path("PATH", os.path.join(self.package_folder, "bin"))
        self.runenv_info.append_path("PATH", os.path.join(self.package_folder, "bin"))
