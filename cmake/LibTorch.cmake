# LibTorch from the PyPI wheel torch==2.11.0, or from GENESIS_LIBTORCH=<dir> (a LibTorch zip or the
# torch folder of any wheel). Torch's own CMake package requires a CUDA compiler even for CPU use, and
# the wheel's include folder also has fmt and an old protobuf, so the project's targets see only
# torch's own four folders.
set(GENESIS_TORCH_VERSION 2.11.0)
if(NOT DEFINED GENESIS_LIBTORCH AND DEFINED ENV{GENESIS_LIBTORCH})
  set(GENESIS_LIBTORCH $ENV{GENESIS_LIBTORCH})
endif()
# deploy/setup.sh installs what is not a Debian package here.
if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(GENESIS_CACHE $ENV{XDG_CACHE_HOME}/genesis)
else()
  set(GENESIS_CACHE $ENV{HOME}/.cache/genesis)
endif()
if(NOT GENESIS_LIBTORCH)
  file(GLOB GENESIS_LIBTORCH
       ${GENESIS_CACHE}/torch-${GENESIS_TORCH_VERSION}/lib/python3*/site-packages/torch)
endif()
if(NOT EXISTS "${GENESIS_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found (looked in '${GENESIS_LIBTORCH}'). "
                      "Run deploy/setup.sh, or set GENESIS_LIBTORCH to a LibTorch ${GENESIS_TORCH_VERSION} folder.")
endif()
message(STATUS "LibTorch: ${GENESIS_LIBTORCH}")

set(_torch_include ${PROJECT_BINARY_DIR}/libtorch-include)
file(MAKE_DIRECTORY ${_torch_include})
foreach(_dir ATen c10 torch caffe2)
  file(CREATE_LINK ${GENESIS_LIBTORCH}/include/${_dir} ${_torch_include}/${_dir} SYMBOLIC)
endforeach()

# Only the CPU libraries are linked: a worker on a machine without a GPU starts in 0.24 s instead of
# 0.4 s and holds 113 MB instead of 348. If a driver is present the worker loads libtorch_cuda.so
# itself (trainer/runtime/device.cc).
find_library(_torch_cpu torch_cpu PATHS ${GENESIS_LIBTORCH}/lib NO_DEFAULT_PATH REQUIRED)
find_library(_c10 c10 PATHS ${GENESIS_LIBTORCH}/lib NO_DEFAULT_PATH REQUIRED)
add_library(genesis_torch INTERFACE)
target_include_directories(genesis_torch SYSTEM INTERFACE
  ${_torch_include} ${GENESIS_LIBTORCH}/include/torch/csrc/api/include)
target_link_libraries(genesis_torch INTERFACE ${_torch_cpu} ${_c10})
# LibTorch was built with it. Without NDEBUG some classes (at::RecordFunction) have other members.
target_compile_definitions(genesis_torch INTERFACE NDEBUG)
target_link_options(genesis_torch INTERFACE -Wl,-rpath,${GENESIS_LIBTORCH}/lib)

# Only for the plug-in (trainer/cuda), into whose process the libraries are already loaded. The wheels that
# LibTorch needs contain cuda_runtime.h. The headers that it includes are in another wheel, which
# deploy/setup.sh --test and --cuda install.
find_path(GENESIS_CUDA_INCLUDE cuda_runtime.h
          PATHS ${GENESIS_LIBTORCH}/../nvidia/cu13/include /usr/local/cuda/include NO_DEFAULT_PATH)
include(CheckIncludeFileCXX)
set(CMAKE_REQUIRED_INCLUDES ${GENESIS_CUDA_INCLUDE})
check_include_file_cxx(cuda_runtime.h GENESIS_CUDA_HEADERS)
unset(CMAKE_REQUIRED_INCLUDES)
if(EXISTS ${GENESIS_LIBTORCH}/lib/libtorch_cuda.so AND GENESIS_CUDA_HEADERS)
  add_library(genesis_torch_cuda INTERFACE)
  target_include_directories(genesis_torch_cuda SYSTEM INTERFACE
    ${_torch_include} ${GENESIS_LIBTORCH}/include/torch/csrc/api/include ${GENESIS_CUDA_INCLUDE})
  target_compile_definitions(genesis_torch_cuda INTERFACE NDEBUG)
  # nccl.h is in a wheel that LibTorch's CUDA half needs.
  find_path(GENESIS_NCCL_INCLUDE nccl.h
            PATHS ${GENESIS_LIBTORCH}/../nvidia/nccl/include NO_DEFAULT_PATH)
  if(GENESIS_NCCL_INCLUDE)
    add_library(genesis_torch_nccl INTERFACE)
    target_include_directories(genesis_torch_nccl SYSTEM INTERFACE ${GENESIS_NCCL_INCLUDE})
    target_link_libraries(genesis_torch_nccl INTERFACE genesis_torch_cuda)
  endif()
endif()
