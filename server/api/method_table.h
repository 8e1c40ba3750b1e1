#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "server/auth/caller.h"

namespace genesis {

// One method of TrainingService, for every transport. Roles are defined only in the table. The HTTP
// form is the method's option google.api.http in the proto; empty in rows outside of the table.
struct MethodRow {
  const char* name;  // Name in training_service.proto.
  Role role;         // Lowest role that may call it.
  bool audited;      // True if every call is written to the audit log.

  std::string verb = {};  // HTTP verb.
  std::string path = {};  // HTTP path, e.g. "/v1/jobs/{job_id}". Braces: request fields.
  // Request field that the HTTP body holds as bytes; the query holds the other fields. "*": the
  // body is the request as JSON. Empty: no body, all fields are in path and query.
  std::string body = {};
  std::string response_body = {};  // Response field that the body holds as bytes. Empty: JSON.
};

const std::vector<MethodRow>& MethodTable();

// Returns nullptr if there is no such method.
const MethodRow* FindMethod(const std::string& name);

// Returns the method's descriptor, with its request and response types and which of them are
// streamed. Aborts if the service has no such method, which is a bug.
const google::protobuf::MethodDescriptor& DescriptorOf(const MethodRow& row);

// Returns the method whose request is named "<name>Request". Aborts if
// there is none, which is a bug.
const MethodRow& MethodOfRequest(const std::string& request_name);

}  // namespace genesis
