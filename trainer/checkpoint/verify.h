#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "trainer/checkpoint/manifest.h"

namespace genesis {

// Reads a checkpoint from end to end and compares it with its manifest: size, CRC-32C of the file
// and of each record. Without a manifest, or beside one that was written for another file, every
// record is checked against the CRC-32 that the file itself holds. Returns what was not as usual
// but no fault, "" for nothing. A fault is DATA_LOSS and names path, record, what was found and
// what was expected. Takes little memory.
// Then the shards that its manifest lists, each by its SHA-256.
absl::StatusOr<std::string> VerifyCheckpoint(const std::string& path);

// The same but for shards, which whoever reads the checkpoint verifies.
absl::StatusOr<std::string> VerifyFile(const std::string& path);

// The same for a file that has no name yet, against the manifest that is to stand beside it.
absl::Status VerifyWritten(const std::string& path, const CheckpointManifest& manifest);

// The shards that a file lists, from its manifest; nullopt where that is another file's.
std::optional<std::vector<ShardFile>> ListedShards(const std::string& path);

// The first of `paths`, newest first, that verifies; `log` is told why others were passed over.
// NOT_FOUND when none does.
absl::StatusOr<std::string> NewestGood(const std::vector<std::string>& paths,
                                       absl::FunctionRef<void(const std::string&)> log);

}  // namespace genesis
