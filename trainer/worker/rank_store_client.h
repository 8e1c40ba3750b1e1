#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A rank's client of the store that its daemon keeps for the ranks of a claim. An operation waits
// for its response even while the daemon is away. Because the daemon may have restarted, each new
// stream resends every value that this rank has set, and requests without a response.
//
// Owner: Attachment. Threads: any. Failure: the status of an operation, UNAVAILABLE once no
// response can arrive.
class RankStoreClient {
 public:
  // Sends one request. Resend repeats requests that it failed to send.
  using Send = std::function<void(const training::v1::StoreRequest&)>;
  explicit RankStoreClient(Send send) : send_(std::move(send)) {}

  absl::Status Set(const std::string& key, const std::string& value);
  // Returns the value of the key once it exists. DEADLINE_EXCEEDED, naming the key, after
  // `patience`.
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration patience);
  absl::Status Wait(const std::vector<std::string>& keys, absl::Duration patience);
  // Returns whether all keys exist now.
  absl::StatusOr<bool> HasAll(const std::vector<std::string>& keys);
  // Adds to a count shared by all ranks, and returns the sum.
  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount);

  // Called by the reader's thread.
  void OnResponse(const training::v1::StoreResponse& response);
  void Resend();
  // Fails every operation with UNAVAILABLE, because no response will arrive.
  void Close(const std::string& why);

 private:
  using Response = training::v1::StoreResponse;

  absl::StatusOr<Response> Call(training::v1::StoreRequest request, absl::Duration patience);
  absl::StatusOr<Response> Read(const std::vector<std::string>& keys, bool wait,
                                absl::Duration patience);

  const Send send_;
  absl::Mutex mutex_;
  SteadyCondition answered_;
  int64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // For Resend: values and counts by key, and requests without a response by ID.
  std::map<std::string, training::v1::StoreRequest> told_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, training::v1::StoreRequest> open_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Response> answers_ ABSL_GUARDED_BY(mutex_);
  std::string closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
