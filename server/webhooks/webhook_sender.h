#pragma once

#include <curl/curl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "metrics/metrics.h"
#include "server/jobs/job_manager.h"
#include "server/store/reader_pool.h"
#include "server/webhooks/delivery.h"
#include "server/webhooks/endpoints.h"

namespace genesis {

// The sender of events to the endpoints of webhooks.file. It reads the numbered events, stores a
// delivery for each that an endpoint wants, and attempts it until the endpoint accepts it or no
// attempt is left. A delivery is removed only after the endpoint accepted it, so that one whose
// acceptance was not stored is sent again, with the same ID.
//
// Owner: the daemon, which stops it before the JobManager. Threads: one of its own, started with
// the first endpoint; the main thread's for the public methods. Failure: what the store refuses is
// tried again every second.
class WebhookSender {
 public:
  WebhookSender(ReaderPool* readers, JobManager* jobs, Metrics* metrics);
  ~WebhookSender() { Stop(); }

  // Replaces the endpoints. One that is new receives the events from now on; one that is missing is
  // forgotten with its deliveries.
  void Replace(std::vector<WebhookEndpoint> endpoints);
  // Ends the thread and the open transfers. Idempotent.
  void Stop();

 private:
  using Multi = std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)>;

  void Loop();
  void Round();
  absl::Status Advance();
  void TakeEndpoints();
  bool SettleWrite();
  absl::Status LoadCursors();
  absl::Status CollectEvents();
  absl::Status StartDue(absl::Time now);
  absl::Status CountWaiting(absl::Time now);
  void FinishTransfers(absl::Time now);
  void Note(const Delivery& delivery, const WebhookAttempt& attempt);
  bool MustWrite() const;
  void PostWrite();

  ReaderPool* const readers_;
  JobManager* const jobs_;
  Metrics* const metrics_;
  const Multi multi_;
  std::thread thread_;

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::vector<WebhookEndpoint>> next_endpoints_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> written_ ABSL_GUARDED_BY(mutex_);  // Result of the write.

  // Used by the thread only, until it ends.
  std::map<std::string, WebhookEndpoint> endpoints_;
  std::optional<std::map<std::string, int64_t>> stored_cursors_;  // Unset until they are read.
  WebhookChanges changes_;                                        // Not yet posted.
  std::shared_ptr<const WebhookChanges> posted_;                  // Null unless a write is open.
  std::map<std::string, WaitingDeliveries> waiting_;
  std::map<int64_t, std::unique_ptr<Delivery>> open_;  // Open transfers, keyed by delivery number.
  std::map<int64_t, std::string> ended_;  // Endpoints of ended transfers without stored result.
  std::set<std::string> failing_;         // Endpoints whose last attempt failed.
  std::minstd_rand random_{std::random_device()()};
  absl::Time next_write_ = absl::InfinitePast();
  absl::Time next_count_ = absl::InfinitePast();
  absl::Status told_;  // Last status of Advance that was logged.
};

}  // namespace genesis
