#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// A file with a part of a checkpoint's tensors, next to <name>.pt, which lists it:
// <name>.pt.shard-<rank>-of-<ranks>-<token>. It has its own manifest.
struct ShardFile {
  std::string name;  // Without the folder.
  uint64_t size = 0;
  std::string sha256;  // In hexadecimal digits.
};

// The manifest of a checkpoint <name>.pt, in <name>.pt.manifest.json. It identifies the checkpoint
// to a reader of the manifest alone, and has checksums of all its bytes. It is durable before the
// checkpoint gets its name. `id` is also in the checkpoint (.data/serialization_id): a manifest
// with another ID belongs to another file of this name and is ignored.
struct CheckpointManifest {
  struct Record {
    std::string name;
    uint64_t size = 0;
    uint32_t crc32c = 0;
  };

  std::string id;
  uint64_t size = 0;  // Size of the file.
  uint32_t crc32c = 0;
  std::vector<Record> records;
  std::string job_id;
  int64_t step = 0;
  std::string mode;  // "FP32", ...
  double loss = 0;
  std::optional<double> held_out_loss;
  std::string sha256;             // SHA-256 of the file if it is a shard.
  std::vector<ShardFile> shards;  // Shards that the file lists.
};

std::string ManifestPath(const std::string& checkpoint);

absl::Status WriteManifest(const CheckpointManifest& manifest, const std::string& checkpoint);

// Returns NOT_FOUND if there is no manifest; DATA_LOSS, with the path, if it is broken.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& checkpoint);

}  // namespace genesis
