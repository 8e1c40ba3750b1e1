include(GNUInstallDirs)
install(TARGETS genesisd genesis-worker genesisctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
get_property(_plugins GLOBAL PROPERTY GENESIS_PLUGINS)
foreach(_plugin ${_plugins})
  # Installed beside genesis-worker, which searches its own folder.
  install(TARGETS ${_plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()
# For clients: find_package(genesis) compiles the protos in the client's own build, for any version of gRPC.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto/genesis ${PROJECT_SOURCE_DIR}/proto/google
        DESTINATION ${CMAKE_INSTALL_DATADIR}/genesis/proto COMPONENT dev
        FILES_MATCHING PATTERN "*.proto")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/include/genesis DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/genesisConfigVersion.cmake COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/genesisConfig.cmake ${PROJECT_BINARY_DIR}/genesisConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_DATADIR}/cmake/genesis COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trainer/compiled/python/
        DESTINATION ${CMAKE_INSTALL_DATADIR}/genesis/compile FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
