# Everything but Halide comes from the distribution; cmake/setup.sh installs it all. `pip install .` (which sets SKBUILD) runs it.
if(SKBUILD AND NOT EXISTS ${PROJECT_SOURCE_DIR}/.deps/halide-21.0.0)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/cmake/setup.sh COMMAND_ERROR_IS_FATAL ANY)
endif()
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost REQUIRED)  # headers only: Boost.Graph's max-flow
find_package(Eigen3 REQUIRED NO_MODULE)
if(PROJECT_IS_TOP_LEVEL)
  find_package(CLI11 REQUIRED)
  if(XHAT_TESTS)
    find_package(GTest REQUIRED)
    find_package(benchmark REQUIRED)
  endif()
endif()

# isl brings no CMake package.
find_path(XHAT_ISL_INCLUDE isl/map.h REQUIRED)
find_library(XHAT_ISL_LIBRARY isl REQUIRED)
add_library(isl::isl UNKNOWN IMPORTED)
set_target_properties(isl::isl PROPERTIES
  IMPORTED_LOCATION ${XHAT_ISL_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${XHAT_ISL_INCLUDE})

# Halide's own package wants CMake 3.28, so it is imported by hand. The two definitions say how the wheel's
# library was built; without them Halide.h declares other classes than libHalide.so contains.
set(XHAT_HALIDE_DIR ${PROJECT_SOURCE_DIR}/.deps/halide-21.0.0 CACHE PATH "Folder with Halide's include/ and lib64/")
if(NOT EXISTS ${XHAT_HALIDE_DIR}/include/Halide.h)
  message(FATAL_ERROR "Halide is not in ${XHAT_HALIDE_DIR}. Run cmake/setup.sh, which fetches it, and configure again.")
endif()
add_library(Halide::Halide SHARED IMPORTED)
set_target_properties(Halide::Halide PROPERTIES
  IMPORTED_LOCATION ${XHAT_HALIDE_DIR}/lib64/libHalide.so
  INTERFACE_INCLUDE_DIRECTORIES ${XHAT_HALIDE_DIR}/include
  INTERFACE_COMPILE_DEFINITIONS "HALIDE_WITH_EXCEPTIONS;HALIDE_ENABLE_RTTI")

# What the page of `xhat viz` draws with: d3, and dagre as netron keeps it, each a file of JavaScript.
set(XHAT_D3 ${PROJECT_SOURCE_DIR}/.deps/mpld3-0.5.12/d3.v5.min.js CACHE FILEPATH "d3, version 5")
set(XHAT_DAGRE ${PROJECT_SOURCE_DIR}/.deps/netron-9.3.3/dagre.js CACHE FILEPATH "dagre.js of netron")
foreach(file IN ITEMS ${XHAT_D3} ${XHAT_DAGRE})
  if(NOT EXISTS ${file})
    message(FATAL_ERROR "${file} is missing. Run cmake/setup.sh, which fetches it, and configure again.")
  endif()
endforeach()
