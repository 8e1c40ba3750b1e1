#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "config/job/faults.h"
#include "genesis/training/v1/field_rule.pb.h"

// Defaults and ranges of the fields of a job file, as field_rule.proto declares them beside each
// field. Each function handles the fields of one message, not of messages inside it.
namespace genesis {

// Sets the missing fields that have a default of their own.
void FillDefaults(google::protobuf::Message& message);

// Adds an error for each number out of its range. `path` names the message, "" the whole job.
void CheckRanges(const std::string& path, const google::protobuf::Message& message, Faults& faults);

// Returns nullptr for a field without a rule.
const training::v1::FieldRule* RuleOf(const google::protobuf::FieldDescriptor& field);

// Returns the accepted numbers: "1 to 65536", ">= 1", "a finite number > 0, or -1 for no clipping";
// "" for any.
std::string AcceptedText(const google::protobuf::FieldDescriptor& field);

// Returns "128", "ADAMW"; "" for a field without a default of its own.
std::string DefaultText(const google::protobuf::FieldDescriptor& field);

// Returns "Default 60. Accepted: 1 to 86400. Unit: seconds."; "" for a field without a rule.
std::string RuleText(const google::protobuf::FieldDescriptor& field);

// Returns the page docs/job_fields.md.
std::string JobFieldsPage();

}  // namespace genesis
