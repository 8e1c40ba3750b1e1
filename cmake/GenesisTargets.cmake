# genesis_library(name SOURCES ... LINK ...): a static library of ours.
function(genesis_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC genesis_flags ${ARG_LINK})
endfunction()

# genesis_program(name SOURCES ... LINK ...): a program in build/<preset>/bin.
function(genesis_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE genesis_flags ${ARG_LINK})
endfunction()

# genesis_test(name LINK ... [LABEL fast]): tests/<name>.cc as one GoogleTest program; every TEST in it
# is a ctest of its own. Called from tests/<folder>/CMakeLists.txt.
function(genesis_test name)
  cmake_parse_arguments(ARG "" "LABEL" "LINK" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  add_executable(${name} ${name}.cc)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE genesis_flags ${ARG_LINK} GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300)
endfunction()
