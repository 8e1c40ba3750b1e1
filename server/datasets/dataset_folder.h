#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/operations.pb.h"

namespace genesis {

// The entries below the dataset root: replay buffers, which are folders with segments, and files.
// Folders in between are not datasets themselves; links and names that begin with a dot are passed
// over. All functions wait for the disk.

// Paths below the root, sorted. RESOURCE_EXHAUSTED when there are more than 100000.
absl::StatusOr<std::vector<std::string>> ListDatasetNames(const std::string& root);

// One of them. NOT_FOUND when it is none (any more). A damaged buffer has 0 transitions.
absl::StatusOr<training::v1::DatasetInfo> DescribeDataset(const std::string& root,
                                                          const std::string& name);

// Removes one for good: first from sight, then its bytes. Statuses of DescribeDataset.
absl::Status RemoveDataset(const std::string& root, const std::string& name);

// In the replay buffer in `folder`, from the headers of its records alone; 0 where there is none.
int64_t CountTransitions(const std::string& folder);

// "" when `name` can be that of a dataset, else what is accepted.
std::string DatasetNameFault(const std::string& name);

}  // namespace genesis
