# xhat_add_op(TARGET FILE op.xh [OP NAME] [DIMS C=64 H=56 ...] [LEVELS sse41 avx2 avx512] [OPTIONS ...] [TARGETS cpu])
#
# A library target, compiled ahead of time when it or the .xh file changes: link it, and include TARGET.h (C) or TARGET.hpp (C++).
# Functions are called TARGET_infer and so on. OP: of a file with several. OPTIONS: anything that xhat build takes.
function(xhat_add_op target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILE;OP" "DIMS;LEVELS;OPTIONS;TARGETS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_FILE)
    message(FATAL_ERROR "xhat_add_op(${target} FILE op.xh [OP NAME] [DIMS ...] [LEVELS ...] [OPTIONS ...] [TARGETS cpu]); "
                        "it was given: ${ARGN}")
  endif()
  foreach(processor IN LISTS arg_TARGETS)
    if(NOT processor STREQUAL "cpu")
      message(FATAL_ERROR "xhat_add_op(${target}): TARGETS ${processor}: not yet; there is cpu")
    endif()
  endforeach()
  cmake_path(ABSOLUTE_PATH arg_FILE BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/xhat/${target})
  set(options --name ${target} -o ${folder} ${arg_OPTIONS})
  if(arg_OP)
    list(APPEND options --op ${arg_OP})
  endif()
  foreach(dim IN LISTS arg_DIMS)
    list(APPEND options --dims ${dim})
  endforeach()
  if(arg_LEVELS)
    list(JOIN arg_LEVELS "," levels)
    list(APPEND options --levels ${levels})
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
    COMMAND ${tools} $<TARGET_FILE:xhat::tool> build ${arg_FILE} ${options}
    DEPENDS ${arg_FILE} xhat::tool
    COMMENT "Compiling ${target} ahead of time"
    VERBATIM)
  add_custom_target(${target}_files DEPENDS ${library} ${folder}/${target}.h ${folder}/${target}.hpp)
  find_package(Threads REQUIRED)
  add_library(${target} INTERFACE)
  add_dependencies(${target} ${target}_files)
  target_include_directories(${target} INTERFACE ${folder})
  target_link_libraries(${target} INTERFACE ${library} Threads::Threads $<$<LINK_LANGUAGE:C>:stdc++> $<$<LINK_LANGUAGE:C>:m>)
endfunction()
