# cmake --install: the tool, which brings its Halide; what libraries compiled ahead of time take in; the engine with its headers; the CMake
# package (cmake/xhatConfig.cmake) and a file for pkg-config; the manual page, completion for shells, licences. docs/installing.md.
# The target `uninstall` removes what was installed; cpack makes a .deb and a .tar.gz.
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/xhat)
set(generated ${PROJECT_BINARY_DIR}/generated)

set_target_properties(xhat PROPERTIES EXPORT_NAME tool INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/xhat")
install(TARGETS xhat EXPORT xhatTool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${XHAT_HALIDE_DIR}/lib64/libHalide.so DESTINATION ${CMAKE_INSTALL_LIBDIR}/xhat)
install(FILES $<TARGET_FILE:xhat_ahead> DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT xhatTool NAMESPACE xhat:: DESTINATION ${package})

set_target_properties(xhat_user PROPERTIES EXPORT_NAME xhat)
set_target_properties(xhat_eigen PROPERTIES EXPORT_NAME eigen)
set_target_properties(xhat_generator PROPERTIES EXPORT_NAME generator)
install(TARGETS xhat_expr xhat_ad xhat_cse xhat_fusion xhat_runtime xhat_user xhat_eigen xhat_generator EXPORT xhatEngine
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
# All below include/xhat: programs include <xhat/xhat.h>.
foreach(folder IN ITEMS expr ad cse fusion runtime)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xhat/${folder} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
endforeach()
install(FILES xhat.h xhat/lazy.h xhat/eigen.h xhat/dlpack.h xhat/mdspan.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xhat)
install(EXPORT xhatEngine NAMESPACE xhat:: DESTINATION ${package})

write_basic_package_version_file(${PROJECT_BINARY_DIR}/xhatConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/xhatConfig.cmake cmake/xhat_add_op.cmake ${PROJECT_BINARY_DIR}/xhatConfigVersion.cmake DESTINATION ${package})

# Where the file lies decides the prefix, so that a package may be unpacked anywhere.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(CONFIGURE OUTPUT ${generated}/xhat.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@prefix_from_pc@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: xhat
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Requires: isl fmt
Libs: -L${libdir} -lxhat_runtime -lxhat_fusion -lxhat_cse -lxhat_ad -lxhat_expr -L${libdir}/xhat -lHalide -Wl,-rpath,${libdir}/xhat -ldl -pthread
Cflags: -I${includedir} -I${includedir}/xhat -std=c++20
]])
install(FILES ${generated}/xhat.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${XHAT_HALIDE_DIR}/LICENSE.txt DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME LICENSE.Halide)
install(FILES runtime/viz/page/licences.txt DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME LICENSE.viz_page)

# By the program itself, from the table of its options (tools/manual.cpp).
foreach(page IN ITEMS "man;${CMAKE_INSTALL_MANDIR}/man1;xhat.1" "bash;${CMAKE_INSTALL_DATADIR}/bash-completion/completions;xhat"
                      "zsh;${CMAKE_INSTALL_DATADIR}/zsh/site-functions;_xhat")
  list(GET page 0 what)
  list(GET page 1 folder)
  list(GET page 2 name)
  install(CODE "
    execute_process(COMMAND \"$<TARGET_FILE:xhat>\" manual ${what} OUTPUT_FILE \"${generated}/${name}\" COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL \"${generated}/${name}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}\")")
endforeach()

add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
                                    -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake)

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_VENDOR "the xhat authors")
set(CPACK_PACKAGE_CONTACT "the xhat authors <xhat@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # of 165 MB of Halide; xz takes two minutes for a third less
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${XHAT_HALIDE_DIR}/lib64)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "g++, libfmt-dev, libisl-dev")  # xhat build runs a compiler; the others are for who links xhat::xhat
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, pkg-config, libeigen3-dev")
include(CPack)
