#include "server/api/subject.h"

#include <google/protobuf/descriptor.h>

namespace genesis {

std::string SubjectOf(const google::protobuf::Message& request) {
  for (const char* name :
       {"job_id", "checkpoint_id", "sweep_id", "worker_id", "dataset", "sha256", "name"}) {
    const google::protobuf::FieldDescriptor* field = request.GetDescriptor()->FindFieldByName(name);
    if (field != nullptr) return request.GetReflection()->GetString(request, field);
  }
  return "";
}

}  // namespace genesis
