# A port to lay over vcpkg's own: vcpkg install xhat --overlay-ports=cmake/vcpkg-port. It builds the repository that it lies in. Dependencies come from
# the distribution and from cmake/setup.sh, as in every other build. docs/installing.md.
cmake_path(GET CURRENT_PORT_DIR PARENT_PATH source)
cmake_path(GET source PARENT_PATH source)
cmake_path(GET source PARENT_PATH source)
set(VCPKG_BUILD_TYPE release)
# The package of `cmake --install` finds everything beside itself, so it stays as it is: lib/cmake/xhat, bin/xhat, lib/xhat/libHalide.so.
set(VCPKG_FIXUP_ELF_RPATH OFF)  # bin/xhat finds its Halide as it is, and patchelf is not needed
set(VCPKG_POLICY_SKIP_MISPLACED_CMAKE_FILES_CHECK enabled)
set(VCPKG_POLICY_SKIP_LIB_CMAKE_MERGE_CHECK enabled)
set(VCPKG_POLICY_MISMATCHED_NUMBER_OF_BINARIES enabled)  # there is no debug build

vcpkg_execute_required_process(COMMAND ${source}/cmake/setup.sh WORKING_DIRECTORY ${source} LOGNAME setup-${TARGET_TRIPLET})
vcpkg_cmake_configure(SOURCE_PATH ${source} OPTIONS -DXHAT_PYTHON=OFF -DXHAT_TESTS=OFF)
vcpkg_cmake_install()
file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/include/xhat/runtime/viz/page)  # empty
vcpkg_install_copyright(FILE_LIST ${source}/LICENSE ${source}/.deps/halide-21.0.0/LICENSE.txt ${source}/runtime/viz/page/licences.txt)
