# The kinds of targets. None of them minds a folder that is missing or empty.

# xhat_sources(VAR FOLDER REGEX [EXCLUDE REGEX] [ROOMS]): the folder's .cpp files that match; ROOMS: those of its subfolders too.
function(xhat_sources var folder regex)
  cmake_parse_arguments(PARSE_ARGV 3 arg "ROOMS" "EXCLUDE" "")
  if(arg_ROOMS)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  endif()
  if(regex)
    list(FILTER sources INCLUDE REGEX "${regex}")
  endif()
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  set(${var} ${sources} PARENT_SCOPE)
endfunction()

# xhat_joined(TARGET [COUNT]): its files are compiled COUNT at a time, 24 if it is not said. What several of them include is then parsed
# once, and what they instantiate is compiled once: a dozen at a time took a fifth longer. So names in anonymous namespaces differ within a
# folder; each test file has a namespace of its own, named as the file is. -DXHAT_JOIN=OFF: each by itself.
option(XHAT_JOIN "Compile files of the engine, of tests and of larger programs many at a time" ON)
function(xhat_joined target)
  set(count ${ARGN} 24)
  list(GET count 0 count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${XHAT_JOIN} UNITY_BUILD_BATCH_SIZE ${count})
endfunction()

# xhat_shareable(TARGET): a static library that the Python extension, which is a shared library, takes in. Functions of ours are not replaced
# when a program is loaded, so that the compiler may still inline them.
function(xhat_shareable target)
  if(XHAT_PYTHON)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  endif()
endfunction()

# xhat_seldom_hot(TARGET): in sanitized builds it is compiled with -Og, two thirds of the time of -O1. The passes and the evaluator, where tests
# spend their time, would run a fifth longer by that, which is more than compiling them saves.
function(xhat_seldom_hot target)
  if(XHAT_SANITIZE)
    target_compile_options(${target} PRIVATE -Og)
  endif()
endfunction()

# xhat_library(FOLDER [EXCLUDE REGEX] PUBLIC ... PRIVATE ...): the library xhat_FOLDER, of all rooms of the folder. A folder without
# sources makes an interface library, so that what links it need not care.
function(xhat_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCLUDE" "PUBLIC;PRIVATE")
  set(name xhat_${folder})
  xhat_sources(sources ${folder} "" EXCLUDE "${arg_EXCLUDE}" ROOMS)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR};${CMAKE_INSTALL_INCLUDEDIR}/xhat>")  # <xhat/xhat.h>; and what its headers include
    target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE} $<BUILD_INTERFACE:xhat_flags>)
    target_compile_features(${name} PUBLIC cxx_std_20)  # of the headers: who links it need not say so
    xhat_joined(${name})
    xhat_shareable(${name})
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${arg_PUBLIC})
  endif()
endfunction()

# xhat_program(NAME SUBFOLDER SOURCES LIBRARIES...): the executable SUBFOLDER/NAME in the build folder, if there are sources.
function(xhat_program name subfolder sources)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${ARGN} xhat_flags)
  # For files such as tests/golden, and for running build/xhat itself.
  target_compile_definitions(${name} PRIVATE
    XHAT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" XHAT_BUILD_DIR="${PROJECT_BINARY_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${subfolder})
endfunction()

# xhat_test_rooms(VAR ROOM...): the test files of these folders of tests/.
function(xhat_test_rooms var)
  set(all "")
  foreach(room IN LISTS ARGN)
    xhat_sources(sources tests/${room} "_test\\.cpp$")
    list(APPEND all ${sources})
  endforeach()
  set(${var} ${all} PARENT_SCOPE)
endfunction()

# xhat_test_program(NAME LABEL RUNS SOURCES LIBRARIES...): a gtest program; each of its suites becomes the test LABEL.Suite. RUNS:
# `released`: sanitized builds do not have it. `either`: they make it by name, for ./test --sanitize, and have no such tests where it was not made.
# Another label of its tests is the run that they are for, `released` or `sanitize`.
# Finer (one process per test) would pay Halide's start-up, about half a second, hundreds of times; coarser would
# neither run in parallel nor survive a crash.
function(xhat_test_program name label runs sources)
  list(FILTER sources EXCLUDE REGEX "^$")
  if(NOT sources MATCHES "_test\\.cpp" OR (runs STREQUAL "released" AND XHAT_SANITIZE))
    return()
  endif()
  set(optional OFF)
  if(XHAT_SANITIZE)
    set(optional ON)
    set(runs sanitize)
  else()
    set(runs released)
  endif()
  xhat_program(${name} tests "${sources}" ${ARGN} GTest::gtest_main)
  xhat_joined(${name} 12)  # with the headers below there is less to share; and even parts end a build together
  # Parsed once and not in each of a hundred files: a third of the time that compiling tests takes.
  target_precompile_headers(${name} PRIVATE <gtest/gtest.h> <algorithm> <cmath> <filesystem> <fstream> <functional> <map> <memory> <optional>
                            <set> <sstream> <string> <unordered_map> <vector> <fmt/format.h>)
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ${optional})
  # Compiling tests costs more than running them. But of templates and inline functions that the engine has too, its optimised code must
  # stay: the linker keeps what it sees first.
  target_compile_options(${name} PRIVATE -O0)
  set(engine $<TARGET_FILE:xhat_expr>,$<TARGET_FILE:xhat_ad>,$<TARGET_FILE:xhat_cse>,$<TARGET_FILE:xhat_fusion>)
  if(NOT label STREQUAL "core")
    string(APPEND engine ,$<TARGET_FILE:xhat_runtime>)
  endif()
  target_link_options(${name} PRIVATE "LINKER:--whole-archive,${engine},--no-whole-archive")
  # Compiling kernels is a tenth faster with it, and that is most of what these tests do. Without it, as with the sanitizers: malloc of the system.
  find_library(XHAT_TEST_MALLOC libjemalloc.so.2)
  if(XHAT_TEST_MALLOC AND runs STREQUAL "released")
    target_link_libraries(${name} PRIVATE ${XHAT_TEST_MALLOC})
  endif()
  set(script ${PROJECT_BINARY_DIR}/tests/${name}_suites.cmake)
  file(CONFIGURE OUTPUT ${script} CONTENT [[
set(program "@PROJECT_BINARY_DIR@/tests/@name@")
set(label "@label@")
set(runs "@runs@")
set(optional @optional@)
set(source_dir "@PROJECT_SOURCE_DIR@")
set(environment "@xhat_test_environment@")
include("@PROJECT_SOURCE_DIR@/cmake/gtest_suites.cmake")
]] @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
