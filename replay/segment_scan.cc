#include "replay/segment_scan.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"

namespace genesis {
namespace {

absl::Status Damaged(const ReplayFile& file, const std::string& what) {
  return absl::DataLossError(absl::StrCat(
      file.path(), ": ", what,
      "; restore this segment from a copy, or move it and all older ones out of the folder"));
}

// Reads the record at `offset`. Returns false if it is not valid.
absl::StatusOr<bool> ReadRecord(const ReplayFile& file, uint64_t offset, uint64_t size,
                                const SegmentScan& scan, RecordEntry& record, std::string& body) {
  if (size - offset < kRecordHeaderSize) return false;
  char header[kRecordHeaderSize];
  if (absl::Status status = file.Read(offset, sizeof(header), header); !status.ok()) return status;
  const std::optional<RecordEntry> decoded = DecodeRecordHeader(header, scan.header.layout);
  const uint64_t next = scan.records.empty()
                            ? scan.header.first
                            : scan.records.back().first + scan.records.back().count;
  if (!decoded || decoded->first != next) return false;
  if (decoded->body_size > size - offset - kRecordHeaderSize) return false;
  record = *decoded;
  record.offset = offset;
  body.resize(record.body_size);
  absl::Status status = file.Read(offset + kRecordHeaderSize, body.size(), body.data());
  if (!status.ok()) return status;
  record.id = body.substr(0, record.id_size);
  return Crc32c(0, body.data(), body.size()) == record.body_checksum;
}

// Returns whether the header of a later record follows `offset`. Records begin at multiples of 4.
absl::StatusOr<bool> HasLaterRecord(const ReplayFile& file, uint64_t offset, uint64_t size,
                                    const SegmentScan& scan) {
  constexpr uint64_t kPiece = 1 << 20;
  const uint64_t known = scan.records.empty() ? scan.header.first : scan.records.back().first;
  std::string bytes;
  for (uint64_t at = offset + 4; at + kRecordHeaderSize <= size; at += kPiece) {
    bytes.resize(std::min(size - at, kPiece + kRecordHeaderSize));
    if (absl::Status status = file.Read(at, bytes.size(), bytes.data()); !status.ok()) {
      return status;
    }
    for (size_t i = 0; i + kRecordHeaderSize <= bytes.size(); i += 4) {
      const auto record = DecodeRecordHeader(bytes.data() + i, scan.header.layout);
      if (record && record->first > known) return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<SegmentHeader> ReadSegmentHeader(const ReplayFile& file) {
  const absl::StatusOr<uint64_t> size = file.Size();
  if (!size.ok()) return size.status();
  if (*size < kSegmentHeaderSize) {
    return Damaged(file,
                   absl::StrCat("has ", *size, " bytes; its header takes ", kSegmentHeaderSize));
  }
  char bytes[kSegmentHeaderSize];
  if (absl::Status status = file.Read(0, sizeof(bytes), bytes); !status.ok()) return status;
  uint32_t version = 0;
  const std::optional<SegmentHeader> header = DecodeSegmentHeader(bytes, version);
  if (!header && version > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        file.path(), ": has version ", version, "; this program reads version 1; use a newer one"));
  }
  if (!header) return Damaged(file, "its header is damaged");
  const std::string name = std::filesystem::path(file.path()).filename().string();
  if (SegmentName(header->first) != name) {
    return Damaged(file, absl::StrCat("begins with transition ", header->first,
                                      ", which is not what its name says"));
  }
  return *header;
}

absl::StatusOr<SegmentScan> ScanSegment(const ReplayFile& file, bool last, RowsVisitor visit) {
  const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(file);
  if (!header.ok()) return header.status();
  SegmentScan scan{.header = *header, .records = {}, .sound_size = kSegmentHeaderSize};
  if (absl::Status status = ContinueScan(file, last, visit, scan); !status.ok()) return status;
  return scan;
}

absl::Status ContinueScan(const ReplayFile& file, bool last, RowsVisitor visit, SegmentScan& scan) {
  // Batches appended from here on are ignored.
  const absl::StatusOr<uint64_t> size = file.Size();
  if (!size.ok()) return size.status();
  std::string body;
  while (scan.sound_size < *size) {
    RecordEntry record;
    const absl::StatusOr<bool> sound = ReadRecord(file, scan.sound_size, *size, scan, record, body);
    if (!sound.ok()) return sound.status();
    if (!*sound) break;
    visit(record, body);
    scan.sound_size = record.end();
    scan.records.push_back(std::move(record));
  }
  scan.torn_size = 0;
  if (scan.sound_size >= *size) return absl::OkStatus();
  const std::string damage = absl::StrCat("the record at byte ", scan.sound_size, " is damaged");
  if (!last) return Damaged(file, damage);
  const absl::StatusOr<bool> later = HasLaterRecord(file, scan.sound_size, *size, scan);
  if (!later.ok()) return later.status();
  if (*later) return Damaged(file, damage);
  scan.torn_size = *size - scan.sound_size;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> ListSegments(const std::string& folder) {
  std::error_code error;
  std::vector<uint64_t> segments;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (const auto first = SegmentFirst(at->path().filename().string())) {
      segments.push_back(*first);
    }
  }
  if (error == std::errc::no_such_file_or_directory) {
    return absl::NotFoundError(absl::StrCat(folder, ": no such folder"));
  }
  if (error) {
    return absl::UnknownError(absl::StrCat(folder, ": cannot be listed: ", error.message()));
  }
  std::sort(segments.begin(), segments.end());
  return segments;
}

}  // namespace genesis
