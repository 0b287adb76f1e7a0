# The Python package, in build/python: the extension beside links to python/xhat/*.py, so that PYTHONPATH=build/python is enough. And as
# the install component `python`, for wheels (pyproject.toml).
find_package(Python 3.11 COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "the Python package needs Python 3.11 or newer with its headers (Debian: python3-dev; found: ${Python_EXECUTABLE} "
                      "${Python_VERSION}). Run cmake/setup.sh, or configure with -DXHAT_PYTHON=OFF.")
endif()
set(XHAT_NANOBIND ${PROJECT_SOURCE_DIR}/.deps/nanobind-3.1.0 CACHE PATH "Folder with nanobind's cmake/, include/ and src/")
if(NOT EXISTS ${XHAT_NANOBIND}/cmake/nanobind-config.cmake)
  message(FATAL_ERROR "nanobind is not in ${XHAT_NANOBIND}. Run cmake/setup.sh, which fetches it, and configure again.")
endif()
find_package(nanobind CONFIG REQUIRED PATHS ${XHAT_NANOBIND}/cmake NO_DEFAULT_PATH)

# PyTorch and JAX are used if some Python has them: that of the comparison with other engines (bench/compare/run --setup), or another one. Tests
# that lack theirs are skipped.
set(XHAT_PYTHON_FRAMEWORKS ${Python_EXECUTABLE} CACHE FILEPATH "Python for tests with PyTorch and JAX, of the version of the extension")
set(compare_python ${PROJECT_SOURCE_DIR}/.deps/compare-venv/bin/python)
if(XHAT_PYTHON_FRAMEWORKS STREQUAL "${Python_EXECUTABLE}" AND EXISTS ${compare_python})
  set(XHAT_PYTHON_FRAMEWORKS ${compare_python})
endif()

xhat_sources(python_sources python/src "")
nanobind_add_module(xhat_python STABLE_ABI NB_STATIC NB_SUPPRESS_WARNINGS NOMINSIZE ${python_sources})  # of one ABI from Python 3.12 on
foreach(name IN ITEMS nanobind-static nanobind-static-abi3)  # the one that the Python at hand gets
  if(TARGET ${name})
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${XHAT_JOIN} UNITY_BUILD_BATCH_SIZE 0)
  endif()
endforeach()
target_link_libraries(xhat_python PRIVATE xhat_commands xhat_flags)
xhat_joined(xhat_python)
target_include_directories(xhat_python PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(xhat_python PRIVATE XHAT_VERSION="${PROJECT_VERSION}")
# The handler that XLA calls, for xhat.jax, by the headers that jaxlib brings; without them xhat.jax calls back to Python.
set(XHAT_JAX_PYTHON ${Python_EXECUTABLE} CACHE FILEPATH "Python with JAX, whose jax.ffi.include_dir() has XLA's headers")
if(XHAT_JAX_PYTHON STREQUAL "${Python_EXECUTABLE}")  # also in a build folder that was configured before JAX came
  set(XHAT_JAX_PYTHON ${XHAT_PYTHON_FRAMEWORKS})
endif()
execute_process(COMMAND ${XHAT_JAX_PYTHON} -c "import importlib.util as u; s = u.find_spec('jaxlib'); print(s.submodule_search_locations[0] + '/include' if s else '')"
                OUTPUT_VARIABLE jax_include OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(jax_include AND EXISTS ${jax_include}/xla/ffi/api/ffi.h)
  target_include_directories(xhat_python SYSTEM PRIVATE ${jax_include})
  target_compile_definitions(xhat_python PRIVATE XHAT_JAX)
  # XLA's headers give members the names of their types, which g++ takes with this alone.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/python/src/xla_call.cpp PROPERTIES COMPILE_OPTIONS -fpermissive)
endif()
set(package ${PROJECT_BINARY_DIR}/python/xhat)
set_target_properties(xhat_python PROPERTIES OUTPUT_NAME _xhat LIBRARY_OUTPUT_DIRECTORY ${package} INSTALL_RPATH "$ORIGIN")
file(GLOB modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/xhat/*.py)
file(MAKE_DIRECTORY ${package})
foreach(module IN LISTS modules)
  cmake_path(GET module FILENAME name)
  file(CREATE_LINK ${module} ${package}/${name} SYMBOLIC)
endforeach()

install(TARGETS xhat_python LIBRARY DESTINATION xhat COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${modules} DESTINATION xhat COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${XHAT_HALIDE_DIR}/lib64/libHalide.so DESTINATION xhat COMPONENT python EXCLUDE_FROM_ALL)
install(FILES ${XHAT_HALIDE_DIR}/LICENSE.txt DESTINATION xhat RENAME LICENSE.Halide COMPONENT python EXCLUDE_FROM_ALL)
install(FILES runtime/viz/page/licences.txt DESTINATION xhat RENAME LICENSE.viz_page COMPONENT python EXCLUDE_FROM_ALL)

# Tests, by pytest. ONNX is there if cmake/setup.sh boards has installed it.
set(python_version ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
set(python_tests ${PROJECT_SOURCE_DIR}/.deps/python-tests-${python_version}:${PROJECT_SOURCE_DIR}/.deps/onnx-${python_version})
file(GLOB test_modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/python/test_*.py)
foreach(module IN LISTS test_modules)
  cmake_path(GET module STEM name)
  string(REPLACE test_ "" name ${name})
  add_test(NAME python.${name} COMMAND ${XHAT_PYTHON_FRAMEWORKS} -B -m pytest -q -p no:cacheprovider ${module} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(python.${name} PROPERTIES LABELS python TIMEOUT 600 SKIP_RETURN_CODE 5
                       ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${python_tests};${xhat_test_environment}")
endforeach()
