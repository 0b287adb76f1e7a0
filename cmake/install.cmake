# cmake --install: the tool, which brings its Halide; what libraries compiled ahead of time take in; the engine with its headers;
# and the CMake package (cmake/xhatConfig.cmake).
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/xhat)

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
foreach(folder IN ITEMS expr ad cse fusion runtime)
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xhat/${folder} FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
endforeach()
install(FILES xhat.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xhat)
install(FILES xhat/lazy.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xhat/xhat)  # #include "xhat/lazy.h", in the tree as well
install(EXPORT xhatEngine NAMESPACE xhat:: DESTINATION ${package})

write_basic_package_version_file(${PROJECT_BINARY_DIR}/xhatConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/xhatConfig.cmake cmake/xhat_add_op.cmake ${PROJECT_BINARY_DIR}/xhatConfigVersion.cmake DESTINATION ${package})
