#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "replay/segment.h"
#include "server/auth/caller.h"

namespace genesis {

// The header of a stream of batches. Required in the first message, optional in later ones.
struct AppendTarget {
  std::string dataset;
  ReplayLayout layout;
  int64_t capacity = 0;  // 0 keeps the current capacity.
  Caller caller = {};    // Must own a buffer that exists, or be an admin.
};

// Returns the target named by `first`, the first message of a stream.
// INVALID_ARGUMENT with every error.
absl::StatusOr<AppendTarget> ReadTarget(const training::v1::AppendTrajectoriesRequest& first);

// Returns the transitions of one message. INVALID_ARGUMENT if the message names another target, the
// length of a column does not match the rewards, or a number is not finite. Each error names the
// batch, the column, and what is accepted.
absl::StatusOr<std::vector<ReplayTransition>> ReadBatch(
    const training::v1::AppendTrajectoriesRequest& request, const AppendTarget& target);

}  // namespace genesis
