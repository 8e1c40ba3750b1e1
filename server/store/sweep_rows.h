#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/sweep.pb.h"
#include "server/store/sqlite.h"

// The queries of the sweep tables in jobs.db, on any connection; InsertSweep and WriteSweep on the
// writer's. Failure: the store's status.
namespace genesis {

struct StoredSweep {
  training::v1::Sweep sweep = {};
  int64_t ordinal = 0;  // Position in the order of acceptance.
  int64_t cursor = 0;   // All events of jobs up to this one are in the trials.
};

// Returns the sweep with its trials.
absl::StatusOr<std::optional<StoredSweep>> ReadSweep(Database& database, const std::string& id);
// Returns the sweeps that have not ended, with their trials, in the order of acceptance.
absl::StatusOr<std::vector<StoredSweep>> ReadOpenSweeps(Database& database);
// Returns at most `limit` sweeps of `owner`, or of all owners if it is empty, without their trials,
// newest first. `before` is the ordinal at which to continue; 0 starts with the newest.
absl::StatusOr<std::vector<StoredSweep>> ReadSweeps(Database& database, const std::string& owner,
                                                    int64_t before, int64_t limit);

// Inserts the sweep and its trials and returns its ordinal. If more than 1000 sweeps have ended,
// removes those of them accepted first. Call between Begin and Commit, like WriteSweep.
absl::StatusOr<int64_t> InsertSweep(Database& database, const StoredSweep& stored);
// Replaces the record of the sweep and its trials with these numbers.
absl::Status WriteSweep(Database& database, const StoredSweep& stored,
                        const std::vector<int>& trials);

}  // namespace genesis
