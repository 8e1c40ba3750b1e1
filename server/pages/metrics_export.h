#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "genesis/training/v1/training_service.pb.h"
#include "metrics/metrics.h"
#include "server/base/io_threads.h"
#include "server/http/http_message.h"
#include "server/store/history_store.h"

namespace genesis {

// The handler of GET and HEAD of /api/metrics/export: the current state and the last day as one
// JSON document, for post-mortems. docs/history.md documents its schema.
//
// Owner: the daemon; outlives the server. Threads: called on the server's thread. The document is
// built on another thread, because reading a day of history takes a while. Failure: 503 if four
// exports are queued or in progress. If the history cannot be read, the document says why.
class MetricsExport {
 public:
  struct Parts {
    const Metrics* metrics;
    HistoryStore* history;  // Null: the document shows no history.
    std::function<training::v1::GetServerInfoResponse()> info;
    std::function<bool()> fp16_enabled_runtime;
    std::function<std::vector<training::v1::Job>()> recent_jobs;
    std::function<void(const std::string& path, int status)> on_response;  // To count responses.
  };
  explicit MetricsExport(Parts parts) : parts_(std::move(parts)), thread_(1) {}

  static bool IsHere(const HttpRequest& request);
  void Handle(const HttpRequest& request, const Respond& respond);

 private:
  std::string MakeDocument() const;

  const Parts parts_;
  std::atomic<int> under_way_{0};
  IoThreads thread_;  // Last, because its tasks use the members above.
};

}  // namespace genesis
