include(GNUInstallDirs)
install(TARGETS genesisd genesis-worker genesisctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
get_property(_plugins GLOBAL PROPERTY GENESIS_PLUGINS)
foreach(_plugin ${_plugins})
  # Installed beside genesis-worker, which searches its own folder.
  install(TARGETS ${_plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto/genesis ${PROJECT_SOURCE_DIR}/proto/google
        DESTINATION ${CMAKE_INSTALL_DATADIR}/genesis/proto
        FILES_MATCHING PATTERN "*.proto")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trainer/compiled/python/
        DESTINATION ${CMAKE_INSTALL_DATADIR}/genesis/compile FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
