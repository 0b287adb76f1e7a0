# cmake -P cmake/check_layers.cmake, in the repository's root: the rooms of the engine, in order. Fails where a file includes one of a
# later room, where a room is not listed or has no README.md, where Halide is included outside runtime/ or isl outside
# expr/index/affine*. Of what goes into libraries that need no Halide (runtime/ahead/support, runtime/device/drivers) no file may include
# Halide's compiler, nor the drivers anything of the engine but what is listed.
set(rooms
  expr/core expr/index expr/text expr/dsl expr/rules expr/imperative expr/eval
  ad/common ad/gather ad/reverse ad/forward ad/check
  cse/match cse/normalize cse/algebra cse/share cse/stash
  fusion/relations fusion/plan fusion/relay fusion/library
  runtime/host runtime/kernel runtime/emit runtime/store runtime/device/drivers runtime/device runtime/cpu/ir runtime/cpu runtime/loops runtime/gpu
  runtime/ahead/support runtime/call runtime/explain runtime/viz runtime/ahead/build runtime/interop runtime/lazy)
set(wrong "")

file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} expr/*.h expr/*.cpp ad/*.h ad/*.cpp cse/*.h cse/*.cpp
     fusion/*.h fusion/*.cpp runtime/*.h runtime/*.cpp)
foreach(file IN LISTS files)
  cmake_path(GET file PARENT_PATH room)
  if(file MATCHES "^runtime/(eigen|dlpack|mdspan)\\.h$")  # the names that users include
    continue()
  endif()
  list(FIND rooms "${room}" place)
  if(place EQUAL -1)
    string(APPEND wrong "\n  ${file}: ${room} is no room of cmake/check_layers.cmake")
    continue()
  endif()
  file(STRINGS ${file} includes REGEX "^#include")
  foreach(include IN LISTS includes)
    if(include MATCHES "\"((expr|ad|cse|fusion|runtime)/.*)/[^/]*\"")
      list(FIND rooms "${CMAKE_MATCH_1}" other)
      if(other GREATER place)
        string(APPEND wrong "\n  ${file}: ${include} is of a later room")
      endif()
    endif()
    if((include MATCHES "[\"<]Halide" AND NOT file MATCHES "^runtime/")
        OR (include MATCHES "[\"<]Halide\\.h" AND file MATCHES "^runtime/(ahead/support|device/drivers)/")
        OR (include MATCHES "\"" AND file MATCHES "^runtime/device/drivers/"
            AND NOT include MATCHES "\"(runtime/device/drivers/|runtime/host/(target|size_value)\\.h|expr/core/error\\.h|fusion/library/library_call\\.h)")
        OR (include MATCHES "[\"<]isl/" AND NOT file MATCHES "^expr/index/affine"))
      string(APPEND wrong "\n  ${file}: ${include} may not come in here")
    endif()
  endforeach()
endforeach()
foreach(room IN LISTS rooms)
  if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/README.md)
    string(APPEND wrong "\n  ${room} has no README.md")
  endif()
endforeach()
if(wrong)
  message(FATAL_ERROR "the rooms are not in order:${wrong}")
endif()
