# cmake -P cmake/check_layers.cmake, in the repository's root: fails where an include points to the right, and where
# Halide is included outside runtime/ or isl outside expr/affine*. Of what goes into libraries that need no Halide (runtime/ahead,
# runtime/devices) no file may include Halide's compiler, nor the drivers anything of the engine but what is listed.
set(layers expr ad cse fusion runtime)
set(wrong "")
set(right "${layers}")
foreach(layer IN LISTS layers)
  list(POP_FRONT right)  # now: the folders to the right of this one
  list(JOIN right "|" forbidden)
  file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${layer}/*.h ${layer}/*.cpp)
  foreach(file IN LISTS files)
    file(STRINGS ${file} includes REGEX "^#include")
    foreach(include IN LISTS includes)
      if((forbidden AND include MATCHES "\"(${forbidden})/")
          OR (include MATCHES "[\"<]Halide" AND NOT layer STREQUAL "runtime")
          OR (include MATCHES "[\"<]Halide\\.h" AND file MATCHES "^runtime/(ahead|devices)/")
          OR (include MATCHES "\"" AND file MATCHES "^runtime/devices/"
              AND NOT include MATCHES "\"(runtime/devices/|runtime/target\\.h|runtime/size_value\\.h|expr/error\\.h|fusion/library_call\\.h)")
          OR (include MATCHES "[\"<]isl/" AND NOT file MATCHES "^expr/affine"))
        string(APPEND wrong "\n  ${file}: ${include}")
      endif()
    endforeach()
  endforeach()
endforeach()
if(wrong)
  message(FATAL_ERROR "these includes break the order ${layers}:${wrong}")
endif()
