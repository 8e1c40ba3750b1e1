# The Debian package genesis-trainer: `deploy/package.sh` builds it with `cpack -G DEB`. It contains the components
# "package", which a plain `cmake --install` leaves out, and "dev" of Install.cmake.
set(_component COMPONENT package EXCLUDE_FROM_ALL)
set(_deploy ${PROJECT_SOURCE_DIR}/deploy)

install(PROGRAMS $<TARGET_FILE:genesisd> $<TARGET_FILE:genesisctl> DESTINATION bin ${_component})
# Started by a script that finds LibTorch, which is not a Debian package.
install(PROGRAMS $<TARGET_FILE:genesis-worker> DESTINATION lib/genesis ${_component})
get_property(_plugins GLOBAL PROPERTY GENESIS_PLUGINS)
foreach(_plugin ${_plugins})
  install(FILES $<TARGET_FILE:${_plugin}> DESTINATION lib/genesis ${_component})
endforeach()
string(REGEX REPLACE "\\.[0-9]+$" "" GENESIS_TORCH_SERIES ${GENESIS_TORCH_VERSION})
configure_file(${_deploy}/package/genesis-worker ${PROJECT_BINARY_DIR}/package/genesis-worker @ONLY)
install(PROGRAMS ${PROJECT_BINARY_DIR}/package/genesis-worker DESTINATION bin ${_component})

install(PROGRAMS ${_deploy}/systemd/run-job DESTINATION lib/genesis ${_component})
install(PROGRAMS ${_deploy}/rollback.sh DESTINATION lib/genesis/deploy ${_component})
install(DIRECTORY ${_deploy}/rollback DESTINATION lib/genesis/deploy ${_component}
        PATTERN __pycache__ EXCLUDE)

install(FILES ${_deploy}/systemd/genesis-trainer.service ${_deploy}/systemd/genesis-worker@.service
              ${_deploy}/systemd/genesis-job@.service
        DESTINATION lib/systemd/system ${_component})
# For genesisctl compile, which searches ../share/genesis relative to its own folder.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trainer/compiled/python/ DESTINATION share/genesis/compile
        ${_component} FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES ${_deploy}/systemd/sysusers.conf DESTINATION lib/sysusers.d
        RENAME genesis-trainer.conf ${_component})
install(FILES ${_deploy}/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d
        RENAME genesis-trainer.conf ${_component})
install(FILES ${_deploy}/systemd/environment ${_deploy}/systemd/worker
        DESTINATION share/genesis-trainer ${_component})
install(FILES ${_deploy}/systemd/genesisd.yaml DESTINATION /etc/genesis ${_component})
install(FILES ${_deploy}/systemd/logrotate.conf DESTINATION /etc/logrotate.d
        RENAME genesis-trainer ${_component})
install(FILES ${_deploy}/package/copyright DESTINATION share/doc/genesis-trainer ${_component})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ ${PROJECT_SOURCE_DIR}/examples
        DESTINATION share/doc/genesis-trainer ${_component})

set(CPACK_PACKAGE_NAME genesis-trainer)
set(CPACK_PACKAGE_CONTACT "Genesis trainer maintainers <genesis@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training daemon with FP32, BF16 and FP16 and a one-line rollback")
set(CPACK_PACKAGE_DESCRIPTION "genesisd accepts training jobs over gRPC, keeps them through crashes and runs them on
LibTorch workers; genesisctl talks to it; genesis-rollback takes a service back to
FP32. LibTorch ${GENESIS_TORCH_SERIES} is needed and is no Debian package: put it into
/opt/genesis/libtorch, or name its folder in /etc/genesis/environment.")
set(CPACK_GENERATOR DEB)
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};genesis;package;/;${PROJECT_BINARY_DIR};genesis;dev;/")
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "logrotate, bash-completion, sqlite3")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libgrpc++-dev, protobuf-compiler-grpc")  # For find_package(genesis).
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${_deploy}/package/debian/conffiles ${_deploy}/package/debian/postinst
    ${_deploy}/package/debian/prerm ${_deploy}/package/debian/postrm)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/PackageDebian.cmake)
set(CPACK_GENESIS_SOURCE ${PROJECT_SOURCE_DIR})
set(CPACK_GENESIS_PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
set(CPACK_GENESIS_LIBTORCH ${GENESIS_LIBTORCH})
include(CPack)
