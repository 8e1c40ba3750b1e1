#include "server/rpc/status_mapping.h"

#include <string>

#include "server/api/rpc_status.h"

namespace genesis {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  const google::rpc::Status rpc = ToRpcStatus(status);
  return grpc::Status(static_cast<grpc::StatusCode>(rpc.code()), rpc.message(),
                      rpc.details().empty() ? "" : rpc.SerializeAsString());
}

}  // namespace genesis
