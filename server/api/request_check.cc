#include "server/api/request_check.h"

#include <vector>

#include "config/field_error.h"
#include "config/message_limits.h"

namespace genesis {

absl::Status CheckRequest(const google::protobuf::Message& request) {
  std::vector<FieldError> faults = CheckSizes(request);
  if (faults.empty()) faults = CheckEnums(request);
  return faults.empty() ? absl::OkStatus() : ToStatus(faults);
}

}  // namespace genesis
