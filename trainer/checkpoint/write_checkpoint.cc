#include "trainer/checkpoint/write_checkpoint.h"

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/durable_file.h"
#include "config/precision/precision.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/pickle_writer.h"
#include "trainer/checkpoint/state_layout.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/formats/record_checksums.h"
#include "trainer/formats/zip_writer.h"

namespace genesis {
namespace {

// A function of the content, as long as torch's: equal states are equal files.
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
  // Over all records but the last, which holds it.
  std::vector<ZipWriter::Record> records = zip.records();
  for (const ZipWriter::Record& record : records) {
    manifest.records.push_back({.name = record.name, .size = record.size, .crc32c = record.crc32c});
  }
  records.pop_back();
  manifest.id = IdOf(records);
  manifest.size = size;
  manifest.crc32c = zip.file_crc32c();
  manifest.job_id = meta.job_id;
  manifest.step = state.position.step;
  manifest.mode = PrecisionName(state.position.mode);
  manifest.loss = state.position.loss;
  manifest.held_out_loss = meta.held_out_loss;
  return manifest;
}

}  // namespace

absl::StatusOr<int64_t> WriteCheckpoint(const TrainingState& state, const std::string& path,
                                        const CheckpointMeta& meta) {
  state.Complete();
  const PickledTree tree = PickleTree(ToTree(state));
  absl::StatusOr<DurableFile> file =
      DurableFile::Create(path, "free space there or lower checkpoint.keep_last");
  if (!file.ok()) return file.status();
  // After an error the file takes no more, and says so below.
  ZipWriter zip([&](const void* data, uint64_t size) { file->Write(data, size); });
  WriteArchive(tree, "archive/", zip);
  if (!file->status().ok()) return file->status();
  const CheckpointManifest manifest = Describe(state, meta, zip, file->size());
  // Read back while the disk still writes, and before the file can take the place of a good one.
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

}  // namespace genesis
