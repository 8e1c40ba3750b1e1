include(GNUInstallDirs)
install(TARGETS genesisd genesis-worker genesisctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(_plugin genesis_cuda genesis_nccl)
  if(TARGET ${_plugin})
    # Beside genesis-worker, which looks there.
    install(TARGETS ${_plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/proto/genesis DESTINATION ${CMAKE_INSTALL_DATADIR}/genesis/proto
        FILES_MATCHING PATTERN "*.proto")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trainer/compiled/python/
        DESTINATION ${CMAKE_INSTALL_DATADIR}/genesis/compile FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
