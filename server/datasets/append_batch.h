#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "replay/layout.h"
#include "replay/rows.h"
#include "server/auth/caller.h"

namespace genesis {

// The header of a stream of batches. Required in the first message, optional in later ones.
struct AppendTarget {
  std::string dataset;
  ReplayLayout layout;   // Empty until the stream knows the columns.
  int64_t capacity = 0;  // 0 keeps the current capacity.
  Caller caller = {};    // Must own a buffer that exists, or be an admin.
};

// Returns the target named by `first`, the first message of a stream, without columns if it
// declares none. INVALID_ARGUMENT with every error.
absl::StatusOr<AppendTarget> ReadTarget(const training::v1::AppendTrajectoriesRequest& first);

// Returns the transitions of one message, as views of it. INVALID_ARGUMENT if the message names
// another target, a column is missing or not in the buffer, or its length does not match the
// rewards. Each error names the batch, the column, and what is accepted.
absl::StatusOr<ReplayRows> ReadRows(const training::v1::AppendTrajectoriesRequest& request,
                                    const AppendTarget& target);

// Returns the status with the batch's ID before its message.
absl::Status InBatch(const std::string& batch_id, const absl::Status& status);

}  // namespace genesis
