#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "config/job/faults.h"
#include "genesis/training/v1/field_rule.pb.h"

// Defaults and ranges of the fields of a job file, which the protos declare by field_rule.proto.
// Each function handles the fields of one message, not of messages nested in it.
namespace genesis {

// Sets each missing field that has a default.
void FillDefaults(google::protobuf::Message& message);

// Adds an error for each number out of range. `path` is the message's path, "" for the whole job.
void CheckRanges(const std::string& path, const google::protobuf::Message& message, Faults& faults);

// Returns the field's rule; nullptr if it has none.
const training::v1::FieldRule* RuleOf(const google::protobuf::FieldDescriptor& field);

// Returns the accepted numbers, e.g. "1 to 65536", ">= 1", or "a finite number > 0, or -1 for no
// clipping"; "" for any.
std::string AcceptedText(const google::protobuf::FieldDescriptor& field);

// Returns the default, e.g. "128" or "ADAMW"; "" if the field has none.
std::string DefaultText(const google::protobuf::FieldDescriptor& field);

// Returns "Default 60. Accepted: 1 to 86400. Unit: seconds."; "" if the field has no rule.
std::string RuleText(const google::protobuf::FieldDescriptor& field);

// Returns the text of docs/job_fields.md.
std::string JobFieldsPage();

}  // namespace genesis
