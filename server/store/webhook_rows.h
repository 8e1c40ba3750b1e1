#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "genesis/training/v1/event.pb.h"
#include "server/store/sqlite.h"

// The queries of the webhook tables in jobs.db, on any connection; WriteWebhooks on the writer's.
// Failure: the store's status.
namespace genesis {

// Returns the header webhook-id of the event, the same for every attempt and endpoint.
std::string WebhookId(const training::v1::JobEvent& event);

// An event that an endpoint has not received: one that waits, or one whose attempts all failed.
struct StoredDelivery {
  int64_t number = 0;  // Order in which the deliveries were added.
  std::string endpoint = {};
  training::v1::JobEvent event = {};
  absl::Time create_time = absl::InfinitePast();
  int attempts = 0;                             // Failed attempts.
  std::optional<absl::Time> next_attempt = {};  // Unset once no attempt is left.
  std::string error = {};                       // Why the last attempt failed.
};

// Returns the cursor of each known endpoint: all events up to it have been examined for it.
absl::StatusOr<std::map<std::string, int64_t>> ReadWebhookCursors(Database& database);

struct WaitingDeliveries {
  int64_t count = 0;
  absl::Time oldest = absl::InfiniteFuture();
};
// Counts the waiting deliveries of each endpoint. Endpoints that have none are missing.
absl::StatusOr<std::map<std::string, WaitingDeliveries>> CountWaitingDeliveries(Database& database);

// Returns at most `limit` deliveries that are due at `now`, oldest event first: at most one per
// job, its oldest waiting one, so that an endpoint receives the events of a job in order.
absl::StatusOr<std::vector<StoredDelivery>> ReadDueDeliveries(Database& database,
                                                              const std::string& endpoint,
                                                              absl::Time now, int64_t limit);

// Returns at most `limit` deliveries with numbers below `before`, newest first; 0 for all numbers.
absl::StatusOr<std::vector<StoredDelivery>> ReadWebhookDeliveries(Database& database,
                                                                  int64_t before, int64_t limit);

// The result of one attempt.
struct WebhookAttempt {
  int64_t number = 0;  // StoredDelivery.number.
  bool delivered = false;
  std::optional<absl::Time> next_attempt = {};  // Unset if no attempt is left.
  std::string error = {};
};

// The changes of one transaction.
struct WebhookChanges {
  struct Addition {
    std::string endpoint;
    training::v1::JobEvent event;
  };
  std::map<std::string, int64_t> cursors = {};  // One per endpoint; other endpoints are removed.
  std::vector<Addition> added = {};             // Ignored for endpoints not in `cursors`.
  std::vector<WebhookAttempt> attempts = {};
  absl::Time now = absl::InfinitePast();
};
// Writes the changes. Removes the oldest deliveries without attempts left if there are more than
// 1000. Call between Begin and Commit.
absl::Status WriteWebhooks(Database& database, const WebhookChanges& changes);

}  // namespace genesis
