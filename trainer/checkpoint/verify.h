#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "trainer/checkpoint/manifest.h"

namespace genesis {

// Reads a whole checkpoint and compares its size and CRC-32C with those in its manifest; if they
// differ, finds the damaged record. Without a manifest, or if it belongs to another file, checks
// every record against the CRC-32 in the file. Then verifies the shards in its manifest, each by
// its SHA-256. Returns a note on an unusual state that is not an error, otherwise "". DATA_LOSS
// names path, record, and the found and expected values. Needs little memory.
absl::StatusOr<std::string> VerifyCheckpoint(const std::string& path);

// Same as VerifyCheckpoint, but skips the shards, which the reader of the checkpoint verifies.
absl::StatusOr<std::string> VerifyFile(const std::string& path);

// Verifies a file under its temporary name against the manifest that it will get.
absl::Status VerifyWritten(const std::string& path, const CheckpointManifest& manifest);

// Returns the shards that a file lists, from its manifest; nullopt if either cannot be read or the
// manifest belongs to another file.
std::optional<std::vector<ShardFile>> ListedShards(const std::string& path);

// Returns the first of `paths` that verifies; callers pass the newest first. Calls `log` with the
// reason for each skipped checkpoint. NOT_FOUND if none verifies.
absl::StatusOr<std::string> NewestGood(const std::vector<std::string>& paths,
                                       absl::FunctionRef<void(const std::string&)> log);

}  // namespace genesis
