#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "server/auth/caller.h"

namespace genesis {

// One method of TrainingService, for every transport: the only place where its role and its HTTP
// form are written.
struct MethodRow {
  const char* name;  // As in training_service.proto.
  Role role;         // The least that may call it.
  bool audited;      // Changes something: a line of the audit log tells of every call.
  const char* verb;  // Of HTTP.
  const char* path;  // "/v1/jobs/{job_id}"; a field of the request in braces.
};

const std::vector<MethodRow>& MethodTable();

// nullptr when there is no such method.
const MethodRow* FindMethod(const std::string& name);

// Its declaration: what it takes and gives, and which of the two is a stream. Ends the program when
// the service has no such method, which is a defect.
const google::protobuf::MethodDescriptor& DescriptorOf(const MethodRow& row);

// Whether messages of this type carry the bytes of a file, as their field `content`.
bool CarriesFile(const google::protobuf::Descriptor& message);

// The method whose request is called "<name>Request". Ends the program when there is none, which is
// a defect.
const MethodRow& MethodOfRequest(const std::string& request_name);

}  // namespace genesis
