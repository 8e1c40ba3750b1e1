#include "replay/replay_snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// Maximum number of listings: the writer may evict a listed segment before it is opened.
constexpr int kTries = 100;

}  // namespace

absl::StatusOr<ReplaySnapshot> ReplaySnapshot::Open(const std::string& folder, RowVisitor visit) {
  ReplaySnapshot snapshot;
  absl::Status status = snapshot.OpenFiles(folder);
  if (status.ok()) status = snapshot.ReadSegments(visit);
  if (!status.ok()) return status;
  return snapshot;
}

absl::Status ReplaySnapshot::OpenFiles(const std::string& folder) {
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    const absl::StatusOr<std::vector<uint64_t>> firsts = ListSegments(folder);
    if (!firsts.ok()) return firsts.status();
    files_.clear();
    status = absl::OkStatus();
    for (const uint64_t first : *firsts) {
      absl::StatusOr<ReplayFile> file =
          ReplayFile::OpenToRead(absl::StrCat(folder, "/", SegmentName(first)));
      status = file.status();
      if (!status.ok()) break;
      files_.push_back(*std::move(file));
    }
    if (!absl::IsNotFound(status)) break;
  }
  if (status.ok() && files_.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, ": holds no replay buffer"));
  }
  return status;
}

absl::Status ReplaySnapshot::ReadSegments(RowVisitor visit) {
  for (size_t i = 0; i < files_.size(); ++i) {
    const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(files_[i]);
    if (!header.ok()) return header.status();
    if (i == 0) {
      layout_ = header->layout;
      first_ = header->first;
    }
    if (header->layout != layout_ || header->first != first_ + static_cast<uint64_t>(size_)) {
      return absl::DataLossError(absl::StrCat(
          files_[i].path(), ": does not continue the segment before it; transitions ",
          first_ + static_cast<uint64_t>(size_), " to ", header->first,
          " are missing or of other sizes; restore them, or move the older segments away"));
    }
    const uint64_t stride = layout_.row_bytes();
    const auto take = [&](const RecordEntry& record, const std::string& body) {
      records_.push_back({.first_row = size_, .segment = i, .offset = record.rows_offset()});
      size_ += record.count;
      const char* end = body.data() + body.size() - record.count * stride;
      for (uint32_t row = 0; row < record.count; ++row) {
        end += stride;
        ReplayRowEnd numbers;
        std::memcpy(&numbers, end - sizeof(numbers), sizeof(numbers));
        visit(numbers);
      }
    };
    const absl::StatusOr<SegmentScan> scan = ScanSegment(files_[i], i + 1 == files_.size(), take);
    if (!scan.ok()) return scan.status();
  }
  return absl::OkStatus();
}

std::string ReplaySnapshot::Describe() const {
  return absl::StrCat(files_.size(), files_.size() == 1 ? " segment" : " segments",
                      ", transitions ", first_, " to ",
                      first_ + static_cast<uint64_t>(std::max<int64_t>(size_, 1)) - 1);
}

absl::Status ReplaySnapshot::Read(int64_t first, int64_t count, char* out) const {
  const uint64_t stride = layout_.row_bytes();
  auto record = std::upper_bound(
      records_.begin(), records_.end(), first,
      [](int64_t row, const Record& candidate) { return row < candidate.first_row; });
  for (--record; count > 0; ++record) {
    const auto next = std::next(record);
    const int64_t end = next == records_.end() ? size_ : next->first_row;
    const int64_t rows = std::min(count, end - first);
    const auto skip = static_cast<uint64_t>(first - record->first_row);
    const uint64_t bytes = static_cast<uint64_t>(rows) * stride;
    absl::Status status = files_[record->segment].Read(record->offset + skip * stride, bytes, out);
    if (!status.ok()) return status;
    out += bytes;
    first += rows;
    count -= rows;
  }
  return absl::OkStatus();
}

}  // namespace genesis
