#include "server/api/rpc_status.h"

#include <string>

#include "absl/strings/cord.h"

namespace genesis {

google::rpc::Status ToRpcStatus(const absl::Status& status) {
  google::rpc::Status rpc;
  rpc.set_code(status.raw_code());
  rpc.set_message(std::string(status.message()));
  status.ForEachPayload([&rpc](absl::string_view type, const absl::Cord& payload) {
    google::protobuf::Any* detail = rpc.add_details();
    detail->set_type_url(std::string(type));
    detail->set_value(std::string(payload));
  });
  return rpc;
}

}  // namespace genesis
