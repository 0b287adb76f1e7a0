# xhat_add_op(TARGET FILE op.xh [OP NAME] [DIMS C=64 H=56 ...] [LEVELS sse41 avx2 avx512] [TARGETS cpu [cuda] [opencl]]
#             [GPU_DIMS N=32 N=64 ...] [OPTIONS ...])
# xhat_add_op(TARGET SOURCES ops.cpp ... [OP NAME] ...)
#
# A library target, compiled ahead of time when the op or xhat changes: link it, and include TARGET.h (C) or TARGET.hpp (C++).
# Functions are called TARGET_infer and so on; on a GPU, TARGET_cuda_infer. OP: of a file with several. GPU_DIMS: sizes there, where
# a dim that is not in DIMS shall not stay open. OPTIONS: anything that xhat build takes.
#
# SOURCES have ops that are written in C++, each as XHAT_OP(NAME) { ... return op.build(); }. They are linked with the engine to a
# program that makes the library when the project is built; find_package(xhat COMPONENTS engine) brings what that takes. Of the
# same SOURCES there is one program, for any number of ops.
function(xhat_add_op target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILE;OP" "SOURCES;DIMS;LEVELS;OPTIONS;TARGETS;GPU_DIMS")
  if(arg_UNPARSED_ARGUMENTS OR (NOT arg_FILE AND NOT arg_SOURCES) OR (arg_FILE AND arg_SOURCES))
    message(FATAL_ERROR "xhat_add_op(${target} FILE op.xh | SOURCES ops.cpp ... [OP NAME] [DIMS ...] [LEVELS ...] [TARGETS ...] "
                        "[GPU_DIMS ...] [OPTIONS ...]); it was given: ${ARGN}")
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/xhat/${target})
  set(options --name ${target} -o ${folder} ${arg_OPTIONS})
  if(arg_OP)
    list(APPEND options --op ${arg_OP})
  endif()
  foreach(dim IN LISTS arg_DIMS)
    list(APPEND options --dims ${dim})
  endforeach()
  foreach(dim IN LISTS arg_GPU_DIMS)
    list(APPEND options --gpu-dims ${dim})
  endforeach()
  if(arg_TARGETS)
    list(JOIN arg_TARGETS "," targets)
    list(APPEND options --target ${targets})
  endif()
  if(arg_LEVELS)
    list(JOIN arg_LEVELS "," levels)
    list(APPEND options --levels ${levels})
  endif()
  if(arg_FILE)
    cmake_path(ABSOLUTE_PATH arg_FILE BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set(command $<TARGET_FILE:xhat::tool> build ${arg_FILE})
    set(depends ${arg_FILE} xhat::tool)
  else()
    xhat_generator(generator ${target} ${arg_SOURCES})
    set(command $<TARGET_FILE:${generator}> --support ${XHAT_SUPPORT_LIBRARY})
    set(depends ${generator} ${XHAT_SUPPORT_LIBRARY})
  endif()
  set(library ${folder}/lib${target}.a)
  set(tools "")
  foreach(language IN ITEMS CXX C)  # what compiles the project compiles the calls
    if(CMAKE_${language}_COMPILER AND NOT tools)
      set(tools ${CMAKE_COMMAND} -E env CXX=${CMAKE_${language}_COMPILER} AR=${CMAKE_AR})
    endif()
  endforeach()
  add_custom_command(
    OUTPUT ${library} ${folder}/${target}.h ${folder}/${target}.hpp
    COMMAND ${tools} ${command} ${options}
    DEPENDS ${depends}
    COMMENT "Compiling ${target} ahead of time"
    VERBATIM)
  add_custom_target(${target}_files DEPENDS ${library} ${folder}/${target}.h ${folder}/${target}.hpp)
  find_package(Threads REQUIRED)
  add_library(${target} INTERFACE)
  add_dependencies(${target} ${target}_files)
  target_include_directories(${target} INTERFACE ${folder})
  if(CMAKE_CXX_COMPILER)
    target_compile_features(${target} INTERFACE cxx_std_20)  # of TARGET.hpp
  endif()
  target_link_libraries(${target} INTERFACE ${library} Threads::Threads ${CMAKE_DL_LIBS} $<$<LINK_LANGUAGE:C>:stdc++> $<$<LINK_LANGUAGE:C>:m>)
endfunction()

# The program that compiles the ops of these sources: one per list of sources.
function(xhat_generator var target)
  if(NOT TARGET xhat::generator)
    message(FATAL_ERROR "xhat_add_op(${target} SOURCES ...) compiles and links C++ with the engine: "
                        "say find_package(xhat REQUIRED COMPONENTS engine)")
  endif()
  set(sources "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND sources ${source})
  endforeach()
  string(SHA256 hash "${sources}")
  string(SUBSTRING ${hash} 0 12 hash)
  set(program xhat_generator_${hash})
  if(NOT TARGET ${program})
    add_executable(${program} EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${program} PRIVATE xhat::generator)
  endif()
  set(${var} ${program} PARENT_SCOPE)
endfunction()
