#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "replay/segment.h"

namespace genesis {

// The header of a stream of batches: the first message gives it, later ones may repeat it.
struct AppendTarget {
  std::string dataset;
  ReplayLayout layout;
  int64_t capacity = 0;    // 0: as it is.
  bool may_shrink = true;  // Whether the capacity may be smaller than it is.
};

// The target that `first`, the first message of a stream, names. INVALID_ARGUMENT with every fault.
absl::StatusOr<AppendTarget> ReadTarget(const training::v1::AppendTrajectoriesRequest& first);

// The transitions of a message for `target`. INVALID_ARGUMENT when the message names another
// target, a column has not as many numbers as the rewards ask for, or a number is not finite; each
// fault names the batch, the column, and what is accepted.
absl::StatusOr<std::vector<ReplayTransition>> ReadBatch(
    const training::v1::AppendTrajectoriesRequest& request, const AppendTarget& target);

}  // namespace genesis
