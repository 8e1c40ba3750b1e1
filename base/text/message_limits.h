#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <vector>

#include "base/text/field_error.h"

namespace genesis {

// Checks of the sizes and enums of an untrusted message, run before its meaning is checked. Fields
// of a JobSpec within a message are named as in a job file: "training.batch_size". Each function
// stops at kMaxFaultsListed errors.

// Reports lists, maps and strings that are too long, so that the cost of refusing a message does
// not grow with its size. Lists of floats and Booleans are bounded only by the size of the message.
// A page token may be longer than other strings because it contains one.
std::vector<FieldError> CheckSizes(const google::protobuf::Message& message);

// Reports numbers that their enum does not define: proto3 accepts all of them. Skips a JobSpec that
// is a part of `message`: ValidateJobSpec reports its enums with its other errors. Call after
// CheckSizes.
std::vector<FieldError> CheckEnums(const google::protobuf::Message& message);

inline constexpr int kMaxItems = 64;             // Default for fields without max_items.
inline constexpr size_t kMaxStringBytes = 4096;  // The longest path on Linux.

}  // namespace genesis
