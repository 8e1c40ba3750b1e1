# What tests run besides our own programs; `deploy/setup.sh --test` installs it. A missing one is an
# error here and not a skipped test.
set(GENESIS_PYTHON ${GENESIS_CACHE}/torch-${GENESIS_TORCH_VERSION}/bin/python
    CACHE FILEPATH "Python with torch ${GENESIS_TORCH_VERSION}, numpy and grpcio")
set(GENESIS_PROMETHEUS ${GENESIS_CACHE}/prometheus/usr/bin
    CACHE PATH "Folder of prometheus and promtool")
foreach(_tool ${GENESIS_PYTHON} ${GENESIS_PROMETHEUS}/prometheus ${GENESIS_PROMETHEUS}/promtool)
  if(NOT EXISTS ${_tool})
    message(FATAL_ERROR "the tests need ${_tool}; run deploy/setup.sh --test, or build without tests "
                        "with -DBUILD_TESTING=OFF")
  endif()
endforeach()
