# Read by CPack after the install into its staging folder and before the package is built (cmake/packaging.cmake):
# the parts computed from the programs themselves.
set(_stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
if(EXISTS ${_stage}/ALL_COMPONENTS_IN_ONE)
  set(_stage ${_stage}/ALL_COMPONENTS_IN_ONE)
endif()
set(_programs ${CPACK_GENESIS_PROGRAMS}/genesisd ${CPACK_GENESIS_PROGRAMS}/genesisctl
    ${CPACK_GENESIS_PROGRAMS}/genesis-worker)

function(run_for_package)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "OUTPUT;INTO;FOLDER" "COMMAND")
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${_stage})
  endif()
  execute_process(COMMAND ${ARG_COMMAND} WORKING_DIRECTORY ${ARG_FOLDER} RESULT_VARIABLE _result
                  OUTPUT_VARIABLE _output ERROR_VARIABLE _error)
  if(NOT _result EQUAL 0)
    message(FATAL_ERROR "making the package: ${ARG_COMMAND}: ${_result}: ${_error}")
  endif()
  if(ARG_INTO)
    file(WRITE ${ARG_INTO} "${_output}")
  endif()
  set(${ARG_OUTPUT} "${_output}" PARENT_SCOPE)
endfunction()

# The path of LibTorch on this machine may belong to any user on another.
run_for_package(COMMAND python3 ${CPACK_GENESIS_SOURCE}/deploy/bundle/set_runpath.py
                ${_stage}/usr/lib/genesis/genesis-worker /opt/genesis/libtorch/lib)

# Builds manual pages from each program's --help, under the names that operators type.
set(_man ${_stage}/usr/share/man)
set(_page python3 ${CPACK_GENESIS_SOURCE}/deploy/package/man_page.py)
run_for_package(COMMAND ${_page} ${CPACK_GENESIS_PROGRAMS}/genesisd 8 "the training daemon"
                INTO ${_man}/man8/genesisd.8)
run_for_package(COMMAND ${_page} ${CPACK_GENESIS_PROGRAMS}/genesisctl 1 "talk to the training daemon"
                INTO ${_man}/man1/genesisctl.1)
run_for_package(COMMAND ${_page} ${CPACK_GENESIS_PROGRAMS}/genesis-worker 1 "train one job"
                INTO ${_man}/man1/genesis-worker.1)
run_for_package(COMMAND ${_page} ${CPACK_GENESIS_SOURCE}/deploy/rollback.sh 8
                "take a training service back to FP32" INTO ${_man}/man8/genesis-rollback.8)
foreach(_completion bash:bash-completion/completions/genesisctl zsh:zsh/vendor-completions/_genesisctl
        fish:fish/vendor_completions.d/genesisctl.fish)
  string(REGEX MATCH "^(.*):(.*)$" _both ${_completion})
  run_for_package(COMMAND ${CPACK_GENESIS_PROGRAMS}/genesisctl completion ${CMAKE_MATCH_1}
                  INTO ${_stage}/usr/share/${CMAKE_MATCH_2})
endforeach()
# CPack strips only targets of the install.
file(GLOB _plugins RELATIVE ${_stage} ${_stage}/usr/lib/genesis/*.so)
run_for_package(COMMAND strip --strip-unneeded usr/bin/genesisd usr/bin/genesisctl
                usr/lib/genesis/genesis-worker ${_plugins})

file(GLOB _pages ${_man}/man*/*.[18])
run_for_package(COMMAND gzip -9nf ${_pages})
file(MAKE_DIRECTORY ${_stage}/usr/sbin)
file(CREATE_LINK ../lib/genesis/deploy/rollback.sh ${_stage}/usr/sbin/genesis-rollback SYMBOLIC)
# The name exists even if the service is disabled; Alias= of the unit exists only while it is enabled.
file(CREATE_LINK genesis-trainer.service
     ${_stage}/usr/lib/systemd/system/genesis-orchestrator.service SYMBOLIC)

# Finds the packages of the libraries that the programs need. LibTorch is in none, hence the option.
set(_control ${CPACK_TOPLEVEL_DIRECTORY}/shlibdeps)
file(MAKE_DIRECTORY ${_control}/debian)
file(WRITE ${_control}/debian/control "Source: genesis-trainer\n\nPackage: genesis-trainer\nArchitecture: any\n")
run_for_package(COMMAND dpkg-shlibdeps --ignore-missing-info -l${CPACK_GENESIS_LIBTORCH}/lib -O ${_programs}
                FOLDER ${_control} OUTPUT _depends)
string(REGEX REPLACE "^shlibs:Depends=|\n" "" _depends "${_depends}")
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${_depends}, curl, python3:any")
