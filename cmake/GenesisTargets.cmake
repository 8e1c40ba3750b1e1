# genesis_library(name [TORCH] SOURCES ... LINK ...): a static library, one per folder. TORCH: its units
# include the precompiled <torch/torch.h>, which takes 20 s otherwise.
function(genesis_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC genesis_flags ${ARG_LINK})
  if(ARG_TORCH)
    genesis_begin_with_torch(${name})
  endif()
endfunction()

# The only precompiled header, built by a library without code, because a target is built after the target
# whose header it reuses.
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/torch_header.cc CONTENT "")
add_library(genesis_torch_header STATIC ${PROJECT_BINARY_DIR}/torch_header.cc)
target_link_libraries(genesis_torch_header PUBLIC genesis_flags genesis_torch)
target_precompile_headers(genesis_torch_header PRIVATE <torch/torch.h>)
# -pthread, because all users get it from abseil and a header can be reused only with the same flags.
target_compile_options(genesis_torch_header PRIVATE -fpch-preprocess -pthread)
function(genesis_begin_with_torch name)
  target_precompile_headers(${name} REUSE_FROM genesis_torch_header)
  target_compile_options(${name} PRIVATE -fpch-preprocess -pthread)
endfunction()

# genesis_embedded_files(source folder header function files...): sets `source` to a file that defines
# `function`, declared by `header`, with the bytes of the files below `folder`.
function(genesis_embedded_files source folder header function)
  set(_output ${CMAKE_CURRENT_BINARY_DIR}/${function}.cc)
  list(JOIN ARGN "," _list)
  list(TRANSFORM ARGN PREPEND ${folder}/ OUTPUT_VARIABLE _paths)
  add_custom_command(OUTPUT ${_output}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} -DFILES=${_list} -DOUTPUT=${_output} -DHEADER=${header}
            -DFUNCTION=${function} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${_paths} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake VERBATIM)
  set(${source} ${_output} PARENT_SCOPE)
endfunction()

# genesis_program(name SOURCES ... LINK ...): a program in build/<preset>/bin.
function(genesis_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE genesis_flags ${ARG_LINK})
endfunction()

# genesis_plugin(name source headers): a library that genesis-worker loads from its own folder. No program
# links it. Built only if the target `headers` exists; GENESIS_PLUGINS lists the plug-ins that are built.
define_property(GLOBAL PROPERTY GENESIS_PLUGINS BRIEF_DOCS "plug-ins" FULL_DOCS "plug-ins of genesis-worker")
function(genesis_plugin name source headers)
  if(NOT TARGET ${headers})
    return()
  endif()
  add_library(${name} MODULE ${source})
  target_link_libraries(${name} PRIVATE genesis_flags ${headers})
  set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
                        CXX_VISIBILITY_PRESET hidden)
  set_property(GLOBAL APPEND PROPERTY GENESIS_PLUGINS ${name})
endfunction()

# genesis_tests(room FILES name... LINK ... [DEFINITIONS ...]): tests/<room>/<name>.cc as one GoogleTest
# program, tests/<room>_tests.
function(genesis_tests room)
  cmake_parse_arguments(ARG "" "" "FILES;LINK;DEFINITIONS" ${ARGN})
  list(TRANSFORM ARG_FILES APPEND .cc)
  genesis_gtest_program(${room}_tests ${room} ${ARG_FILES})
  target_link_libraries(${room}_tests PRIVATE ${ARG_LINK})
  target_compile_definitions(${room}_tests PRIVATE ${ARG_DEFINITIONS})
endfunction()

# genesis_gtest_program(name prefix file...): a GoogleTest program. Each suite is a ctest, <prefix>.<Suite>, because
# loading LibTorch takes longer than most tests. Each test in tests/slow_tests.txt is a ctest of its own.
function(genesis_gtest_program name prefix)
  add_executable(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE genesis_flags GTest::gmock GTest::gtest_main)
  file(STRINGS ${PROJECT_SOURCE_DIR}/tests/slow_tests.txt _listed REGEX "^[^#]")
  foreach(_file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_file})
    file(READ ${_file} _text)
    string(REGEX MATCHALL "\nTEST(_F|_P)?\\([ \n]*[A-Za-z0-9_]+,[ \n]*[A-Za-z0-9_]+\\)" _tests "${_text}")
    foreach(_test ${_tests})
      string(REGEX REPLACE "^.*\\([ \n]*([A-Za-z0-9_]+),[ \n]*([A-Za-z0-9_]+)\\)$" "\\1;\\2" _test "${_test}")
      list(GET _test 0 _suite)
      list(JOIN _test "." _test)
      # A test with parameters is listed as Instance/Suite.Name/0.
      set(_slow ${_listed})
      list(FILTER _slow INCLUDE REGEX "^([A-Za-z0-9_]+/)?${_test}(/[0-9]+)?$")
      list(APPEND _slow_of_${_suite} ${_slow})
      if(NOT _test IN_LIST _slow)
        list(APPEND _suites ${_suite})
      endif()
      foreach(_each ${_slow})
        genesis_gtest(${name} ${prefix}.${_each} ${_each} gate)
      endforeach()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES _suites)
  foreach(_suite ${_suites})
    list(JOIN _slow_of_${_suite} ":" _slow)
    genesis_gtest(${name} ${prefix}.${_suite} "${_suite}.*:*/${_suite}.*-${_slow}" unit)
  endforeach()
endfunction()

# genesis_gtest(program test filter label)
function(genesis_gtest program test filter label)
  add_test(NAME ${test} COMMAND ${program} --gtest_filter=${filter})
  set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT 300 FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/slow_tests.txt)

# genesis_tests_of(file tests): sets tests to "<Class>.<method>/<tier>" of each test method of a Python file. A method
# or class below @tiers.nightly has the tier nightly, every other one gate.
function(genesis_tests_of file tests)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} _lines REGEX "^class |^    def test_|^ *@tiers.nightly")
  set(_tests)
  set(_tier gate)
  foreach(_line ${_lines})
    if(_line MATCHES "^ *@tiers.nightly")
      set(_tier nightly)
    elseif(_line MATCHES "^class ([A-Za-z]+)")
      set(_class ${CMAKE_MATCH_1})
      set(_class_tier ${_tier})
      set(_tier gate)
    elseif(_line MATCHES "def (test_[a-z0-9_]+)")
      set(_method ${CMAKE_MATCH_1})
      if(_class_tier STREQUAL nightly)
        set(_tier nightly)
      endif()
      list(APPEND _tests ${_class}.${_method}/${_tier})
      set(_tier gate)
    endif()
  endforeach()
  set(${tests} ${_tests} PARENT_SCOPE)
endfunction()

# genesis_python_files(PREFIX prefix LABEL label PYTHON interpreter FOLDER folder FIXTURE fixture NAMES file...
# ENVIRONMENT variable...): a ctest for each file and tier, <prefix><file> and <prefix><file>.nightly. For files whose
# methods take less time than a process for each method would.
function(genesis_python_files)
  cmake_parse_arguments(ARG "" "PREFIX;LABEL;PYTHON;FOLDER;FIXTURE" "NAMES;ENVIRONMENT" ${ARGN})
  foreach(_name ${ARG_NAMES})
    genesis_tests_of(${ARG_FOLDER}/${_name}.py _tests)
    list(TRANSFORM _tests REPLACE "^.*/" "" OUTPUT_VARIABLE _tiers)
    list(REMOVE_DUPLICATES _tiers)
    foreach(_tier ${_tiers})
      set(_test ${ARG_PREFIX}${_name})
      if(_tier STREQUAL nightly)
        string(APPEND _test .nightly)
      endif()
      # Exits with 77 if this machine forbids what a test needs.
      add_test(NAME ${_test} COMMAND ${ARG_PYTHON} ${PROJECT_SOURCE_DIR}/tests/e2e/ctest_main.py ${_name}
               WORKING_DIRECTORY ${ARG_FOLDER})
      set_tests_properties(${_test} PROPERTIES LABELS "${ARG_LABEL};${_tier}" TIMEOUT 1800 SKIP_RETURN_CODE 77
                           FIXTURES_REQUIRED "${ARG_FIXTURE}" ENVIRONMENT "${ARG_ENVIRONMENT};GENESIS_TIER=${_tier}")
    endforeach()
  endforeach()
endfunction()
