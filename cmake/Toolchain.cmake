# Language level, warnings, sanitizers, compiler cache. The project's targets link genesis_flags;
# third-party headers are SYSTEM, so the warnings apply only to the project's code.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
# Full debug information of torch and gRPC units is slow to write and rarely read.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g")

option(BUILD_TESTING "Build the tests" ON)
option(GENESIS_TIDY "Run clang-tidy on every unit" OFF)
# Parsing headers takes most of the time of a unit. With this option a full build takes a third of the
# time, and a build after a change of one file takes longer. deploy/lib.sh enables it for a first build.
option(GENESIS_UNITY "Compile the files of a library a dozen at a time" OFF)
set(GENESIS_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, e.g. address,undefined")

find_program(CCACHE ccache)
if(CCACHE)
  # Several checkouts share the cache; a precompiled header needs the sloppiness.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=10G
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

set(CMAKE_UNITY_BUILD ${GENESIS_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

add_library(genesis_flags INTERFACE)
target_include_directories(genesis_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(genesis_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
if(GENESIS_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC treats included source files as headers.
  target_compile_options(genesis_flags INTERFACE -Wno-subobject-linkage)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(genesis_flags INTERFACE -Wthread-safety)
endif()
if(GENESIS_SANITIZE)
  # With sanitizers, GCC warns about paths on which a variant's string was never constructed.
  add_compile_options(-fsanitize=${GENESIS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${GENESIS_SANITIZE})
  if(GENESIS_SANITIZE MATCHES "thread")
    # Protobuf's maps have extra members if this is defined, which the system's library lacks.
    add_compile_options(-U__SANITIZE_THREAD__)
  endif()
endif()
if(GENESIS_TIDY)
  find_program(CLANG_TIDY clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${CLANG_TIDY} --quiet)
endif()
