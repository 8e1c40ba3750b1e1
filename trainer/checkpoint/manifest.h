#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace genesis {

// A file in which a share of a checkpoint's tensors is, beside <name>.pt, which lists it:
// <name>.pt.shard-<rank>-of-<ranks>-<token>, with a manifest of its own.
struct ShardFile {
  std::string name;  // Without a folder.
  uint64_t size = 0;
  std::string sha256;  // In hexadecimal digits.
};

// The manifest beside a checkpoint <name>.pt, <name>.pt.manifest.json: enough to tell without
// reading it what it is, and after reading it whether every byte is as it was written. It is
// durable before the checkpoint has its name. `id` is also in the checkpoint
// (.data/serialization_id): a manifest with another one was written for another file of this name
// and is not used.
struct CheckpointManifest {
  struct Record {
    std::string name;
    uint64_t size = 0;
    uint32_t crc32c = 0;
  };

  std::string id;
  uint64_t size = 0;  // Of the file.
  uint32_t crc32c = 0;
  std::vector<Record> records;
  std::string job_id;
  int64_t step = 0;
  std::string mode;  // "FP32", ...
  double loss = 0;
  std::optional<double> held_out_loss;
  std::string sha256;             // Of the file, where it is a shard.
  std::vector<ShardFile> shards;  // That the file lists.
};

std::string ManifestPath(const std::string& checkpoint);

absl::Status WriteManifest(const CheckpointManifest& manifest, const std::string& checkpoint);

// NOT_FOUND where there is none; DATA_LOSS, with the path, for one that is broken.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& checkpoint);

}  // namespace genesis
