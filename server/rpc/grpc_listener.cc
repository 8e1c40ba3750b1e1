#include "server/rpc/grpc_listener.h"

#include <sys/un.h>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// Reports are small; a job's specification is the largest message.
constexpr int kMaxMessageBytes = 4 * 1024 * 1024;

}  // namespace

absl::StatusOr<std::unique_ptr<grpc::Server>> StartWorkerListener(const std::string& path,
                                                                  grpc::Service* service) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the workers' socket path ", path, " has ", path.size(), " characters; at most ",
        sizeof(sockaddr_un::sun_path) - 1, " fit: choose a shorter --data-dir"));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.RegisterService(service);
  builder.AddListeningPort(absl::StrCat("unix:", path), grpc::InsecureServerCredentials());
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on the workers' socket ", path,
                     ": gRPC could not bind it; choose another --data-dir"));
  }
  return server;
}

}  // namespace genesis
