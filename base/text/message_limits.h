#pragma once

#include <google/protobuf/message.h>

#include <cstddef>
#include <vector>

#include "base/text/field_error.h"

namespace genesis {

// The faults in the shape of a message that came from somebody else, before anything looks at
// what it means. A JobSpec within a message is named as a job file names it: "training.batch_size".
// Each function stops at kMaxFaultsListed faults.

// Lists, maps and strings that are too long, so that what it costs to refuse a message does not
// grow with the message. Columns of numbers are bounded by the message alone; a page token may be
// longer, for it holds a string.
std::vector<FieldError> CheckSizes(const google::protobuf::Message& message);

// Numbers that their enum does not have: proto3 lets all of them through. Not within a JobSpec that
// is a part of `message`: ValidateJobSpec finds them together with its other faults. After
// CheckSizes.
std::vector<FieldError> CheckEnums(const google::protobuf::Message& message);

inline constexpr int kMaxItems = 64;             // Where a field has no max_items.
inline constexpr size_t kMaxStringBytes = 4096;  // The longest path of Linux.

}  // namespace genesis
