#include "server/base/request_check.h"

#include <vector>

#include "base/text/field_error.h"
#include "base/text/message_limits.h"

namespace genesis {

absl::Status CheckRequest(const google::protobuf::Message& request) {
  std::vector<FieldError> faults = CheckSizes(request);
  if (faults.empty()) faults = CheckEnums(request);
  return faults.empty() ? absl::OkStatus() : ToStatus(faults);
}

}  // namespace genesis
