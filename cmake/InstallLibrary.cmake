# `cmake --install BUILD --component library`: the oracle as a library, the client of the driver protocol, and their CMake package. What is installed can be moved.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/gradledger)

add_library(gradledger_driver INTERFACE)
add_library(gradledger::driver ALIAS gradledger_driver)
target_compile_features(gradledger_driver INTERFACE cxx_std_20)
target_include_directories(gradledger_driver INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/drivers/cpp> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(gradledger_driver INTERFACE nlohmann_json::nlohmann_json)
set_target_properties(gradledger_driver PROPERTIES EXPORT_NAME driver)

# A file for each component: whoever wants one alone need not have what the other is linked with.
foreach(component oracle driver)
  install(TARGETS gradledger_${component} EXPORT gradledger-${component} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT gradledger-${component} NAMESPACE gradledger:: DESTINATION ${package} COMPONENT library)
endforeach()
install(DIRECTORY library/include/gradledger ${CMAKE_BINARY_DIR}/library/include/gradledger drivers/cpp/gradledger DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# fmt has names of their own for each major release: the archive fits one of them.
string(REGEX MATCH "^[0-9]+" fmt_major "${fmt_VERSION}")
math(EXPR fmt_major_next "${fmt_major} + 1")

configure_package_config_file(cmake/gradledgerConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/gradledgerConfig.cmake INSTALL_DESTINATION ${package})
# Until 1.0 a minor release may change names.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/gradledgerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gradledgerConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/gradledgerConfigVersion.cmake DESTINATION ${package} COMPONENT library)
