# cmake -DROOT=... -DOUT=... -P cmake/fingerprint.cmake: writes a header with a hash of the sources that decide what machine
# code a kernel gets. All folders of the library: fewer would be a guess, and a rebuilt kernel costs little.
set(all "")
foreach(folder IN ITEMS expr ad cse fusion runtime)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.def)
  foreach(file IN LISTS files)  # sorted
    file(SHA256 ${ROOT}/${file} hash)
    string(APPEND all "${file} ${hash}\n")
  endforeach()
endforeach()
string(SHA256 hash "${all}")
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\n#define XHAT_SOURCE_HASH \"${hash}\"\n")  # touched only if it changes
