#pragma once

#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace genesis {

// One call to a Kubernetes API server.
struct ApiServerCall {
  std::string method;  // E.g. "GET".
  std::string target;  // E.g. "/apis/batch/v1/namespaces/genesis/jobs?limit=500".
  std::string body = {};
  std::string content_type = "application/json";
};

struct ApiServerReply {
  int status = 0;
  std::string body;
};

// A Kubernetes API server, called over HTTPS with the token of a service account. Each call opens a
// new connection and reads token and CA again, because both may change while a pod runs.
//
// Owner: KubernetesLauncher. Threads: one. Failure: FAILED_PRECONDITION for an unusable file,
// UNAVAILABLE for a server that is unreachable or whose certificate the CA did not sign,
// DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED for a reply larger than kMaxReply. Any complete reply is
// OK, whatever its HTTP status.
class ApiServer {
 public:
  static constexpr size_t kMaxReply = size_t{16} << 20U;

  struct Options {
    std::string host;
    int port = 443;
    std::string token_file;
    std::string ca_file;
    absl::Duration timeout = absl::Seconds(30);
  };
  // Calls return soon after `*stopping` becomes true.
  ApiServer(Options options, const std::atomic<bool>* stopping)
      : options_(std::move(options)), stopping_(stopping) {}

  absl::StatusOr<ApiServerReply> Call(const ApiServerCall& call) const;

 private:
  const Options options_;
  const std::atomic<bool>* const stopping_;
};

}  // namespace genesis
