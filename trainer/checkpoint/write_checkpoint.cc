#include "trainer/checkpoint/write_checkpoint.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/crc32c.h"
#include "base/files/durable_file.h"
#include "base/files/sha256.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/precision/precision.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/pickle_writer.h"
#include "trainer/checkpoint/state_layout.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/formats/record_checksums.h"
#include "trainer/formats/zip_writer.h"

namespace genesis {
namespace {

// Returns an ID as long as torch's, computed from the content: equal states have equal files.
std::string IdOf(const std::vector<ZipWriter::Record>& records) {
  uint32_t first = 0;
  uint32_t second = 0;
  for (const ZipWriter::Record& record : records) {
    first = Crc32c(first, &record.crc32c, sizeof(record.crc32c));
    second = Crc32c(second, &record.crc32, sizeof(record.crc32));
  }
  return absl::StrFormat("%020d%020d", first, second);
}

void WriteArchive(const PickledTree& tree, const std::string& folder, ZipWriter& zip) {
  std::vector<std::string_view> bytes;
  for (const PickledTree::Storage& each : tree.storages) bytes.emplace_back(each.data, each.size);
  ChecksumsAhead sums(bytes);
  zip.Add(folder + "data.pkl", tree.pickle.data(), tree.pickle.size());
  zip.Add(folder + "byteorder", "little", 6);
  for (size_t i = 0; i < tree.storages.size(); ++i) {
    zip.Add(absl::StrCat(folder, "data/", i), bytes[i].data(), bytes[i].size(), sums.Of(i));
  }
  zip.Add(folder + "version", "3\n", 2);
  const std::string id = IdOf(zip.records());
  zip.Add(folder + ".data/serialization_id", id.data(), id.size());
  zip.Finish();
}

CheckpointManifest Describe(const TrainingState& state, const CheckpointMeta& meta,
                            const ZipWriter& zip, uint64_t size) {
  CheckpointManifest manifest;
  // The ID covers all records except the last, which contains it.
  std::vector<ZipWriter::Record> records = zip.records();
  for (const ZipWriter::Record& record : records) {
    manifest.records.push_back({.name = record.name, .size = record.size, .crc32c = record.crc32c});
  }
  records.pop_back();
  manifest.id = IdOf(records);
  manifest.size = size;
  manifest.crc32c = zip.file_crc32c();
  manifest.job_id = meta.job_id;
  manifest.step = state.position.progress.step();
  manifest.mode = ShortEnumName(state.position.progress.mode());
  manifest.loss = state.position.progress.loss();
  manifest.held_out_loss = meta.held_out_loss;
  return manifest;
}

absl::StatusOr<int64_t> WriteTree(const Value& root, const TrainingState& state,
                                  const std::string& path, const CheckpointMeta& meta,
                                  const std::vector<ShardFile>& shards = {}) {
  const PickledTree tree = PickleTree(root);
  absl::StatusOr<DurableFile> file =
      DurableFile::Create(path, "free space there or lower checkpoint.keep_last");
  if (!file.ok()) return file.status();
  // After an error, writes do nothing, and the status below reports it.
  const bool is_shard = meta.shard && shards.empty();
  Sha256Stream sha256;
  ZipWriter zip([&](const void* data, uint64_t size) {
    if (is_shard) sha256.Add({static_cast<const char*>(data), size});
    file->Write(data, size);
  });
  WriteArchive(tree, "archive/", zip);
  if (!file->status().ok()) return file->status();
  CheckpointManifest manifest = Describe(state, meta, zip, file->size());
  manifest.shards = shards;
  if (is_shard) manifest.sha256 = sha256.FinishHex();
  // Read back while the disk still writes, and before the file can replace a good one.
  absl::Status status = VerifyWritten(file->temporary(), manifest);
  if (!status.ok()) return status;
  status = WriteManifest(manifest, path);
  if (!status.ok()) return status;
  status = file->Commit();
  if (!status.ok()) {
    unlink(ManifestPath(path).c_str());
    return status;
  }
  return static_cast<int64_t>(file->size());
}

}  // namespace

absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path,
                                        const CheckpointMeta& meta) {
  state.Complete();
  return WriteTree(ToTree(state), state, path, meta);
}

absl::StatusOr<int64_t> WriteShard(const TrainingState& state, const std::string& path,
                                   const CheckpointMeta& meta) {
  state.Complete();
  return WriteTree(ShardTree(state, *meta.shard), state, ShardPath(path, *meta.shard), meta);
}

absl::StatusOr<std::optional<std::vector<ShardFile>>> FindShards(const std::string& path,
                                                                 int64_t step,
                                                                 const CheckpointMeta& meta) {
  std::vector<ShardFile> shards;
  for (int rank = 0; rank < meta.shard->ranks; ++rank) {
    ShardPlace place = *meta.shard;
    place.rank = rank;
    const std::string shard = ShardPath(path, place);
    std::error_code error;
    if (!std::filesystem::exists(shard, error)) return std::nullopt;
    // The manifest is durable before the shard gets its name.
    const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(shard);
    if (!manifest.ok()) return manifest.status();
    if (manifest->job_id != meta.job_id || manifest->step != step || manifest->sha256.empty()) {
      return absl::DataLossError(absl::StrCat(
          ManifestPath(shard), ": is of job ", QuoteValue(manifest->job_id), " at step ",
          manifest->step, "; accepted: of a shard of job ", meta.job_id, " at step ", step));
    }
    shards.push_back({.name = std::filesystem::path(shard).filename().string(),
                      .size = manifest->size,
                      .sha256 = manifest->sha256});
  }
  return shards;
}

absl::StatusOr<int64_t> WriteIndex(const TrainingState& state, const std::string& path,
                                   const CheckpointMeta& meta,
                                   const std::vector<ShardFile>& shards) {
  state.Complete();
  const absl::StatusOr<int64_t> size =
      WriteTree(IndexTree(state, *meta.shard, shards), state, path, meta, shards);
  if (!size.ok()) return size;
  RemoveShards(path, shards);
  int64_t all = *size;
  for (const ShardFile& shard : shards) all += static_cast<int64_t>(shard.size);
  return all;
}

}  // namespace genesis
