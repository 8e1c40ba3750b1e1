#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/operations.pb.h"

namespace genesis {

// The entries below the dataset root: files, and replay buffers, which are folders with segments.
// Other folders are not datasets. Links and names that begin with a dot are skipped. All functions
// block on the disk.

// Returns the paths relative to the root, sorted. RESOURCE_EXHAUSTED for more than 100000.
absl::StatusOr<std::vector<std::string>> ListDatasetNames(const std::string& root);

// Describes one dataset. NOT_FOUND if it does not exist or no longer exists. A damaged buffer is
// described with 0 transitions.
absl::StatusOr<training::v1::DatasetInfo> DescribeDataset(const std::string& root,
                                                          const std::string& name);

// Removes a dataset permanently: hides it first, then deletes it. Statuses of DescribeDataset.
absl::Status RemoveDataset(const std::string& root, const std::string& name);

// Returns the total size of the files in `folder`.
int64_t BytesIn(const std::string& folder);

// Returns "" if `name` is a valid dataset name. Otherwise returns what is accepted.
std::string DatasetNameFault(const std::string& name);

}  // namespace genesis
