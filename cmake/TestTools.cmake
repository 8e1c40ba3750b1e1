# What tests run besides our own programs; `deploy/setup.sh --test` installs it. A missing one is an
# error here and not a skipped test.
set(GENESIS_PYTHON ${GENESIS_CACHE}/torch-${GENESIS_TORCH_VERSION}/bin/python
    CACHE FILEPATH "Python with torch ${GENESIS_TORCH_VERSION}, numpy and grpcio")
set(GENESIS_PROMETHEUS ${GENESIS_CACHE}/prometheus/usr/bin
    CACHE PATH "Folder of prometheus and promtool")
set(GENESIS_DEBIAN_TREE ${GENESIS_CACHE}/debian-12
    CACHE PATH "Debian 12 in a folder, in which the package is installed")
foreach(_tool ${GENESIS_DEBIAN_TREE}/.complete ${GENESIS_PYTHON} ${GENESIS_PROMETHEUS}/prometheus ${GENESIS_PROMETHEUS}/promtool)
  if(NOT EXISTS ${_tool})
    message(FATAL_ERROR "the tests need ${_tool}; run deploy/setup.sh --test, or build without tests "
                        "with -DBUILD_TESTING=OFF")
  endif()
endforeach()
