"""A project that takes xhat from Conan: `conan create .` runs this on the package that it made."""
import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TakesXhat(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain", "CMakeDeps", "VirtualRunEnv"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure(variables={"WAY": "find"}, build_script_folder=os.path.join(self.source_folder, os.pardir, "packages"))
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(os.path.join(self.cpp.build.bindir, "takes_xhat"), env="conanrun")
            self.run("xhat --version", env="conanrun")
