# Flags for all of our targets: one interface target, so that a dependent project's own code is left alone.
add_library(xhat_flags INTERFACE)
target_compile_features(xhat_flags INTERFACE cxx_std_20)
target_compile_options(xhat_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wnon-virtual-dtor
  # In files compiled together, a local name may well be that of something global in another file.
  $<IF:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>,-Wshadow=local;-Wno-subobject-linkage,-Wshadow>
  # The evaluator is the reference for every other path: a*b+c must be two roundings on any machine, not an fma
  # where the compiler finds one. Code that wants an fma says std::fma.
  -ffp-contract=off
  # g++ 12 sees overlapping copies in plain std::string concatenation (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(XHAT_WERROR AND NOT XHAT_SANITIZE)  # instrumented code draws false warnings
  target_compile_options(xhat_flags INTERFACE -Werror)
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  # The hot loops are compiled by Halide. For the rest, -O1 with the inlining of -O2 is as fast as -O2 (tests of the core) and compiles in three
  # quarters of the time; no -march, so it runs anywhere.
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(CMAKE_CXX_FLAGS_RELEASE "-O1 -finline-functions -finline-small-functions -findirect-inlining -DNDEBUG")
  endif()
  # Sanitized code: fast enough to run the tests, with usable stack traces.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer")

  # g++ looks for its garbage from 128 MB on, which takes a tenth of the time of files compiled together. From 1 GB on, where every core has
  # thrice that.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    cmake_host_system_information(RESULT memory QUERY TOTAL_PHYSICAL_MEMORY)  # MB
    cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
    math(EXPR wanted "3000 * ${cores}")
    if(memory GREATER wanted)
      string(APPEND CMAKE_CXX_FLAGS " --param=ggc-min-heapsize=1000000")
    endif()
  endif()

  find_program(XHAT_CCACHE ccache)
  if(XHAT_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${XHAT_CCACHE})
  endif()
endif()

if(XHAT_SANITIZE)
  # Null pointers trap by themselves, and show as such; x86 reads at any address. These checks take half of the time to compile.
  target_compile_options(xhat_flags INTERFACE -fsanitize=${XHAT_SANITIZE} -fno-sanitize-recover=all
                                              -fno-sanitize=null,object-size,vptr,alignment,pointer-overflow
                                              -Wno-maybe-uninitialized)  # false in instrumented code
  # Uses of local variables after their scope: looking for them takes a third of the time to compile.
  option(XHAT_SANITIZE_SCOPES "Sanitized builds look for uses of local variables after their scope" OFF)
  if(NOT XHAT_SANITIZE_SCOPES)
    target_compile_options(xhat_flags INTERFACE -fno-sanitize-address-use-after-scope)
  endif()
  target_link_options(xhat_flags INTERFACE -fsanitize=${XHAT_SANITIZE})
endif()

# Every test runs with these. Those of sanitizers mean nothing to an unsanitized program. POCL_CACHE_DIR: where PoCL keeps what it compiled.
# XHAT_TEST_CACHE, XHAT_CACHE_DIR: kernels that tests have compiled, for all tests and presets of these sources: the generated code is
# never instrumented, so each run loads what others compiled. (Code of other sources is never loaded,
# runtime/store/fingerprint.h; test programs read the first of the two, tests/helpers/kernel_folder.cpp.)
# malloc_context_size: where memory was allocated is said by one frame; whole stacks take a third of the time of tests that compile kernels.
# intercept_tls_get_addr: up to GCC 13 the sanitizer takes thread-local memory of a loaded library for
# that of a glibc before 2.25 if it lies 16 bytes into a page, reads where it begins from beside it, and the leak check crashes there
# (google/sanitizers issue 1322).
set(xhat_test_kernels ${PROJECT_SOURCE_DIR}/build/test-kernels)
set(xhat_test_environment
  "POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/pocl"
  "ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:intercept_tls_get_addr=0:malloc_context_size=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp"
  "XHAT_TEST_CACHE=${xhat_test_kernels}"
  "XHAT_CACHE_DIR=${xhat_test_kernels}")
