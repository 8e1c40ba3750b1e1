# Tools of the tests other than the project's programs; `deploy/setup.sh --test` installs them. A
# missing one is an error here, not a skipped test.
set(GENESIS_PYTHON ${GENESIS_CACHE}/torch-${GENESIS_TORCH_VERSION}/bin/python
    CACHE FILEPATH "Python with torch ${GENESIS_TORCH_VERSION}, numpy and grpcio")
set(GENESIS_PROMETHEUS ${GENESIS_CACHE}/prometheus/usr/bin
    CACHE PATH "Folder of prometheus, promtool and amtool")
set(GENESIS_OPS_PYTHON ${GENESIS_CACHE}/ops-1/bin/python
    CACHE FILEPATH "Python beside which kubectl, hadolint and the other checks of deploy/ are")
set(GENESIS_EXPORT_PYTHON ${GENESIS_CACHE}/export-1/bin/python
    CACHE FILEPATH "Python with TensorBoard, MLflow, W&B and Trackio")
set(GENESIS_DEBIAN ${GENESIS_CACHE}/debian-12.tar CACHE FILEPATH "Debian 12, as debootstrap makes it")
set(GENESIS_DEBIAN_TREE ${GENESIS_CACHE}/debian-12
    CACHE PATH "Debian 12 in a folder, in which the package is installed")
foreach(_tool ${GENESIS_PYTHON} ${GENESIS_PROMETHEUS}/prometheus ${GENESIS_PROMETHEUS}/promtool
              ${GENESIS_PROMETHEUS}/amtool ${GENESIS_OPS_PYTHON} ${GENESIS_EXPORT_PYTHON}
              ${GENESIS_DEBIAN} ${GENESIS_DEBIAN_TREE}/.complete)
  if(NOT EXISTS ${_tool})
    message(FATAL_ERROR "the tests need ${_tool}; run deploy/setup.sh --test, or build without tests "
                        "with -DBUILD_TESTING=OFF")
  endif()
endforeach()
