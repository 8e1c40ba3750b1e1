#pragma once

#include <string>

#include "cli/commands/arguments.h"
#include "genesis/training/v1/job.pb.h"
#include "google/protobuf/map.h"
#include "google/protobuf/repeated_field.h"

namespace genesis::cli {

// Add the values of --state and --label to a request. Return "", or the error.
std::string AddStates(const Arguments& arguments, google::protobuf::RepeatedField<int>& states);
std::string AddLabels(const Arguments& arguments,
                      google::protobuf::Map<std::string, std::string>& labels);

}  // namespace genesis::cli
