#include "replay/segment_scan.h"

#include <algorithm>
#include <cstring>
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

// A record and the ends of its rows.
struct ScannedRecord {
  RecordEntry entry;
  std::vector<ReplayRowEnd> ends;
};

// Returns whether `record` may follow the records of an unfinished batch, or begin a batch.
bool Continues(const std::vector<ScannedRecord>& batch, const RecordEntry& record) {
  if (record.part / 2 != batch.size()) return false;
  return batch.empty() || batch.back().entry.id == record.id;
}

// Reads the record at `offset`, whose first transition is `next`. Returns false if it is not valid.
absl::StatusOr<bool> ReadRecord(const ReplayFile& file, uint64_t offset, uint64_t size,
                                const ReplayLayout& layout, uint64_t next, ScannedRecord& record,
                                std::string& body) {
  if (size - offset < kRecordHeaderSize) return false;
  char header[kRecordHeaderSize];
  if (absl::Status status = file.Read(offset, sizeof(header), header); !status.ok()) return status;
  const std::optional<RecordEntry> decoded = DecodeRecordHeader(header, layout);
  if (!decoded || decoded->first != next) return false;
  if (decoded->body_size > size - offset - kRecordHeaderSize) return false;
  RecordEntry& entry = record.entry;
  entry = *decoded;
  entry.offset = offset;
  body.resize(entry.body_size);
  absl::Status status = file.Read(offset + kRecordHeaderSize, body.size(), body.data());
  if (!status.ok()) return status;
  if (Crc32c(0, body.data(), body.size()) != entry.body_checksum) return false;
  entry.id = body.substr(0, entry.id_size);
  record.ends.resize(entry.count);
  const char* end = body.data() + (entry.rows_offset() - entry.offset - kRecordHeaderSize);
  for (ReplayRowEnd& numbers : record.ends) {
    end += layout.row_bytes();
    std::memcpy(&numbers, end - sizeof(numbers), sizeof(numbers));
  }
  return true;
}

// Returns whether the header of a later batch follows `offset`. Records begin at multiples of 4.
// Later parts of the batch at `offset` do not count, because a crash may leave them without it.
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
      if (record && record->first > known && record->part / 2 == 0) return true;
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
  std::string bytes(std::min(*size, kSegmentHeaderSize + kMaxDeclaration), '\0');
  if (absl::Status status = file.Read(0, bytes.size(), bytes.data()); !status.ok()) return status;
  uint32_t version = 0;
  const std::optional<SegmentHeader> header = DecodeSegmentHeader(bytes, version);
  if (!header && version > 2) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": has version ", version,
                     "; this program reads versions 1 and 2; use a newer one"));
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
  SegmentScan scan{.header = *header, .records = {}, .sound_size = header->size};
  if (absl::Status status = ContinueScan(file, last, visit, scan); !status.ok()) return status;
  return scan;
}

absl::Status ContinueScan(const ReplayFile& file, bool last, RowsVisitor visit, SegmentScan& scan) {
  // Batches appended from here on are ignored.
  const absl::StatusOr<uint64_t> size = file.Size();
  if (!size.ok()) return size.status();
  std::string body;
  std::vector<ScannedRecord> batch;  // Records of a batch whose last part was not read yet.
  uint64_t at = scan.sound_size;
  uint64_t next = scan.next();
  while (at < *size) {
    ScannedRecord record;
    const absl::StatusOr<bool> sound =
        ReadRecord(file, at, *size, scan.header.layout, next, record, body);
    if (!sound.ok()) return sound.status();
    if (!*sound) break;
    if (!Continues(batch, record.entry)) {
      return Damaged(file, absl::StrCat("the record at byte ", at, " is not the next part"));
    }
    at = record.entry.end();
    next += record.entry.count;
    const bool complete = !record.entry.continues();
    batch.push_back(std::move(record));
    if (!complete) continue;
    for (ScannedRecord& part : batch) {
      visit(part.entry, part.ends);
      scan.records.push_back(std::move(part.entry));
    }
    batch.clear();
    scan.sound_size = at;
  }
  scan.torn_size = 0;
  if (scan.sound_size >= *size) return absl::OkStatus();
  const std::string damage = absl::StrCat("the record at byte ", at, " is damaged");
  if (!last) return Damaged(file, damage);
  const absl::StatusOr<bool> later = HasLaterRecord(file, at, *size, scan);
  if (!later.ok()) return later.status();
  if (*later) return Damaged(file, damage);
  scan.torn_size = *size - scan.sound_size;
  return absl::OkStatus();
}

absl::StatusOr<ReplayLayout> ReadReplayLayout(const std::string& folder) {
  const absl::StatusOr<std::vector<uint64_t>> segments = ListSegments(folder);
  if (!segments.ok()) return segments.status();
  if (segments->empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": holds no replay buffer; append to it first"));
  }
  // Open the newest segment, because the writer never evicts it.
  const absl::StatusOr<ReplayFile> file =
      ReplayFile::OpenToRead(absl::StrCat(folder, "/", SegmentName(segments->back())));
  if (!file.ok()) return file.status();
  absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(*file);
  if (!header.ok()) return header.status();
  return std::move(header->layout);
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
