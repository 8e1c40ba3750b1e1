#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "server/auth/caller.h"

namespace genesis {

// One method of TrainingService, for every transport. Roles and HTTP
// forms are defined only here.
struct MethodRow {
  const char* name;  // Name in training_service.proto.
  Role role;         // Lowest role that may call it.
  bool audited;      // True if every call is written to the audit log.
  const char* verb;  // HTTP verb.
  const char* path;  // HTTP path, e.g. "/v1/jobs/{job_id}". Braces: request fields.
};

const std::vector<MethodRow>& MethodTable();

// Returns nullptr if there is no such method.
const MethodRow* FindMethod(const std::string& name);

// Returns the method's descriptor, with its request and response types and which of them are
// streamed. Aborts if the service has no such method, which is a bug.
const google::protobuf::MethodDescriptor& DescriptorOf(const MethodRow& row);

// Returns true if messages of this type carry the bytes of a file in their field `content`.
bool CarriesFile(const google::protobuf::Descriptor& message);

// Returns the method whose request is named "<name>Request". Aborts if
// there is none, which is a bug.
const MethodRow& MethodOfRequest(const std::string& request_name);

}  // namespace genesis
