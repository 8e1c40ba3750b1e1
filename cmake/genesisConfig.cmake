# Installed for clients of genesisd. Defines genesis::proto, a static library with the messages and gRPC stubs of the
# API. The client's build generates it from the installed protos with its own Protobuf and gRPC.
include(CMakeFindDependencyMacro)
find_dependency(Protobuf)
find_dependency(gRPC CONFIG)
if(TARGET genesis::proto)
  return()
endif()
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

get_filename_component(_protos ${CMAKE_CURRENT_LIST_DIR}/../../genesis/proto ABSOLUTE)
get_filename_component(_headers ${CMAKE_CURRENT_LIST_DIR}/../../../include ABSOLUTE)
file(GLOB _names RELATIVE ${_protos} ${_protos}/genesis/training/v1/*.proto ${_protos}/google/api/*.proto)
set(_generated ${CMAKE_CURRENT_BINARY_DIR}/genesis-proto)
file(MAKE_DIRECTORY ${_generated})
set(_sources ${_generated}/genesis/training/v1/training_service.grpc.pb.cc)
set(_files)
foreach(_name ${_names})
  list(APPEND _files ${_protos}/${_name})
  string(REGEX REPLACE "proto$" "pb.cc" _source ${_name})
  list(APPEND _sources ${_generated}/${_source})
endforeach()
add_custom_command(OUTPUT ${_sources}
  COMMAND protobuf::protoc -I ${_protos} --cpp_out=${_generated} --grpc_out=${_generated}
          --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN} ${_names}
  DEPENDS ${_files} VERBATIM)
add_library(genesis_proto STATIC ${_sources})
add_library(genesis::proto ALIAS genesis_proto)
target_include_directories(genesis_proto SYSTEM PUBLIC ${_generated} ${_headers})
target_link_libraries(genesis_proto PUBLIC protobuf::libprotobuf gRPC::grpc++)
