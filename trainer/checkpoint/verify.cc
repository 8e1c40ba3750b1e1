#include "trainer/checkpoint/verify.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/crc32c.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/checkpoint/shards.h"
#include "trainer/formats/data_file.h"
#include "trainer/formats/zip_archive.h"

namespace genesis {
namespace {

constexpr uint64_t kVerifyPiece = uint64_t{1} << 20;

absl::StatusOr<uint32_t> ChecksumOfPart(const DataFile& file, uint64_t offset, uint64_t size) {
  std::string piece(std::min(kVerifyPiece, size), '\0');
  uint32_t crc = 0;
  for (uint64_t done = 0; done < size;) {
    const uint64_t count = std::min(kVerifyPiece, size - done);
    if (absl::Status s = file.Read(offset + done, count, piece.data()); !s.ok()) return s;
    crc = Crc32c(crc, piece.data(), count);
    done += count;
  }
  return crc;
}

// Returns the CRC-32C of a range. Uses two threads, because one is slower than a fast disk.
absl::StatusOr<uint32_t> ChecksumOf(const DataFile& file, uint64_t offset, uint64_t size) {
  if (size <= 2 * kVerifyPiece) return ChecksumOfPart(file, offset, size);
  const uint64_t half = size / 2;
  std::future<absl::StatusOr<uint32_t>> second = std::async(
      std::launch::async, [&] { return ChecksumOfPart(file, offset + half, size - half); });
  const absl::StatusOr<uint32_t> first = ChecksumOfPart(file, offset, half);
  const absl::StatusOr<uint32_t> rest = second.get();
  if (!first.ok() || !rest.ok()) return first.ok() ? rest : first;
  return CombineCrc32c(*first, *rest, size - half);
}

// Verifies the records against the checksums in the zip file, without a manifest.
absl::Status VerifyAlone(const ZipArchive& archive) {
  for (const std::string& name : archive.names()) {
    const absl::StatusOr<ZipArchive::Location> location = archive.Locate(name);
    if (!location.ok()) return location.status();
    if (!location->stored) {
      return absl::InvalidArgumentError(absl::StrCat(archive.path(), ": record ", QuoteValue(name),
                                                     " is compressed; accepted: stored records"));
    }
    if (absl::Status status = archive.CheckStored(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Returns the ID in the archive, or "" if there is none.
std::string IdOf(const ZipArchive& archive) {
  for (const std::string& name : archive.names()) {
    if (!absl::EndsWith(name, "/.data/serialization_id")) continue;
    const absl::StatusOr<ZipArchive::Location> location = archive.Locate(name);
    if (!location.ok() || !location->stored || location->size > 100) return "";
    const absl::StatusOr<std::string> id = archive.Read(name);
    return id.ok() ? *id : "";
  }
  return "";
}

// Verifies the whole file. If that fails, finds the damaged record.
absl::Status VerifyBeside(const ZipArchive& archive, const CheckpointManifest& manifest) {
  const DataFile& file = *archive.file();
  if (file.size() != manifest.size) {
    return absl::DataLossError(absl::StrCat(archive.path(), ": is ", file.size(),
                                            " bytes long; its manifest says ", manifest.size));
  }
  const absl::StatusOr<uint32_t> whole = ChecksumOf(file, 0, file.size());
  if (!whole.ok()) return whole.status();
  if (*whole == manifest.crc32c) return absl::OkStatus();
  for (const CheckpointManifest::Record& record : manifest.records) {
    if (!archive.Contains(record.name)) {
      return absl::DataLossError(absl::StrCat(archive.path(), ": record ", QuoteValue(record.name),
                                              " of its manifest is not there"));
    }
    const absl::StatusOr<ZipArchive::Location> location = archive.Locate(record.name);
    if (!location.ok()) return location.status();
    const absl::StatusOr<uint32_t> crc = ChecksumOf(file, location->offset, location->size);
    if (!crc.ok()) return crc.status();
    if (location->size == record.size && *crc == record.crc32c) continue;
    return absl::DataLossError(absl::StrFormat(
        "%s: record %s has %d bytes with CRC-32C %08x; its manifest says %d and %08x; the file is "
        "damaged",
        archive.path(), OneLine(record.name, kMaxNameBytes), location->size, *crc, record.size,
        record.crc32c));
  }
  return absl::DataLossError(absl::StrFormat(
      "%s: has CRC-32C %08x; its manifest says %08x; the file is damaged between its records",
      archive.path(), *whole, manifest.crc32c));
}

absl::StatusOr<std::string> Verify(const std::string& path, std::vector<ShardFile>* shards) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(path);
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!archive.ok()) {
    if (!absl::IsDataLoss(archive.status()) || !manifest.ok()) return archive.status();
    return absl::DataLossError(
        absl::StrCat(archive.status().message(), "; its manifest says ", manifest->size, " bytes"));
  }
  if (!manifest.ok() && !absl::IsNotFound(manifest.status())) return manifest.status();
  const std::string id = IdOf(*archive);
  if (manifest.ok() && id.empty()) {
    return absl::DataLossError(absl::StrCat(
        path,
        ": has no record .data/serialization_id that can be read, and its manifest was "
        "written for a file that has; remove ",
        ManifestPath(path), " if another program wrote it"));
  }
  if (manifest.ok() && manifest->id == id) {
    if (absl::Status status = VerifyBeside(*archive, *manifest); !status.ok()) return status;
    if (shards != nullptr) *shards = manifest->shards;
    return std::string();
  }
  if (absl::Status status = VerifyAlone(*archive); !status.ok()) return status;
  if (!manifest.ok()) return absl::StrCat(path, ": has no manifest; its own checksums are right");
  return absl::StrCat(ManifestPath(path), ": was written for another file of this name; ", path,
                      " is checked by its own checksums, and they are right");
}

}  // namespace

absl::StatusOr<std::string> VerifyFile(const std::string& path) {
  absl::StatusOr<std::string> verified = Verify(path, nullptr);
  if (!verified.ok()) return FitFileFault(verified.status());
  return verified;
}

absl::StatusOr<std::string> VerifyCheckpoint(const std::string& path) {
  std::vector<ShardFile> shards;
  absl::StatusOr<std::string> verified = Verify(path, &shards);
  if (verified.ok()) {
    if (absl::Status status = VerifyShards(path, shards); !status.ok()) verified = status;
  }
  if (!verified.ok()) return FitFileFault(verified.status());
  return verified;
}

std::optional<std::vector<ShardFile>> ListedShards(const std::string& path) {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(path);
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!manifest.ok() || !archive.ok() || IdOf(*archive) != manifest->id) return std::nullopt;
  return manifest->shards;
}

absl::Status VerifyWritten(const std::string& path, const CheckpointManifest& manifest) {
  const absl::StatusOr<ZipArchive> archive = ZipArchive::Open(path);
  if (!archive.ok()) return archive.status();
  return VerifyBeside(*archive, manifest);
}

absl::StatusOr<std::string> NewestGood(const std::vector<std::string>& paths,
                                       absl::FunctionRef<void(const std::string&)> log) {
  for (const std::string& path : paths) {
    const absl::StatusOr<std::string> verified = VerifyCheckpoint(path);
    if (verified.ok()) return path;
    log(absl::StrCat("checkpoint ", path, " cannot be used: ", verified.status().message()));
  }
  return absl::NotFoundError(absl::StrCat("none of ", paths.size(), " checkpoints is sound"));
}

}  // namespace genesis
