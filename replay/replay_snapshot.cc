#include "replay/replay_snapshot.h"

#include <unistd.h>

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
  ReplaySnapshot snapshot(folder);
  absl::Status status = snapshot.OpenSegments(0);
  if (!status.ok()) return status;
  if (snapshot.segments_.empty()) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": holds no replay buffer; append to it first"));
  }
  snapshot.layout_ = snapshot.segments_.front().scan.header.layout;
  status = snapshot.ReadSegments(0, visit);
  if (!status.ok()) return status;
  return snapshot;
}

// Opens the segments whose first transition is `from` or later, without reading their records.
absl::Status ReplaySnapshot::OpenSegments(uint64_t from) {
  const size_t before = segments_.size();
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    const absl::StatusOr<std::vector<uint64_t>> firsts = ListSegments(folder_);
    if (!firsts.ok()) return firsts.status();
    segments_.resize(before);
    status = absl::OkStatus();
    for (const uint64_t first : *firsts) {
      if (first < from) continue;
      absl::StatusOr<ReplayFile> file =
          ReplayFile::OpenToRead(absl::StrCat(folder_, "/", SegmentName(first)));
      status = file.status();
      if (!status.ok()) break;
      const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(*file);
      if (!header.ok()) return header.status();
      segments_.push_back({.file = *std::move(file),
                           .scan = {.header = *header, .records = {}, .sound_size = header->size},
                           .records = {}});
    }
    if (!absl::IsNotFound(status)) break;
  }
  return status;
}

// Reads the records of all open segments except the first `from` segments.
absl::Status ReplaySnapshot::ReadSegments(size_t from, RowVisitor visit) {
  for (size_t i = from; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    const SegmentHeader& header = segment.scan.header;
    const uint64_t expected = i == from ? header.first : segments_[i - 1].next();
    if (header.layout != layout_ || header.first != expected) {
      return absl::DataLossError(absl::StrCat(
          segment.file.path(), ": does not continue the segment before it; transitions ", expected,
          " to ", header.first,
          " are missing or of other sizes; restore them, or move the older segments away"));
    }
    absl::Status status = ReadRows(i + 1 == segments_.size(), visit, segment);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReplaySnapshot::ReadRows(bool last, RowVisitor visit, Segment& segment) {
  const auto take = [&](const RecordEntry& record, absl::Span<const ReplayRowEnd> ends) {
    segment.records.push_back(
        {.first = record.first, .offset = record.rows_offset(), .end = record.end()});
    for (uint32_t row = 0; row < record.count; ++row) visit(record.first + row, ends[row]);
  };
  absl::Status status = ContinueScan(segment.file, last, take, segment.scan);
  auto& records = segment.scan.records;
  if (records.size() > 1) records.erase(records.begin(), records.end() - 1);
  return status;
}

absl::Status ReplaySnapshot::ReadNew(RowVisitor visit) {
  for (;;) {
    // The writer finishes a segment before it begins the next, and evicts only finished ones.
    const bool finished = !InFolder(segments_.back().scan.header.first);
    absl::Status status = ReadRows(/*last=*/true, visit, segments_.back());
    if (!status.ok()) return status;
    const bool torn = segments_.back().scan.torn_size > 0;
    const bool begun = next() > segments_.back().scan.header.first && InFolder(next());
    if (!finished && !begun && !torn) return absl::OkStatus();
    const size_t before = segments_.size();
    if (status = OpenSegments(next() + (begun ? 0 : 1)); !status.ok()) return status;
    if (segments_.size() == before) {
      // The unfinished batch is still being written.
      if (!finished) return absl::OkStatus();
      return absl::NotFoundError(absl::StrCat(
          folder_,
          ": the replay buffer was removed while a job follows it; append to it again and "
          "submit the job anew"));
    }
    // A batch that looked unfinished is now complete, or damaged.
    if (torn) status = ReadRows(/*last=*/false, visit, segments_[before - 1]);
    if (status.ok()) status = ReadSegments(before, visit);
    if (!status.ok()) return status;
  }
}

bool ReplaySnapshot::InFolder(uint64_t segment) const {
  return access(absl::StrCat(folder_, "/", SegmentName(segment)).c_str(), F_OK) == 0;
}

uint64_t ReplaySnapshot::FirstInFolder() const {
  for (const Segment& segment : segments_) {
    if (InFolder(segment.scan.header.first)) return segment.scan.header.first;
  }
  return next();
}

void ReplaySnapshot::Forget(uint64_t number) {
  while (segments_.size() > 1 && segments_[1].scan.header.first <= number) segments_.pop_front();
}

std::string ReplaySnapshot::Describe() const {
  return absl::StrCat(segments_.size(), segments_.size() == 1 ? " segment" : " segments",
                      ", transitions ", first(), " to ", std::max(next(), first() + 1) - 1);
}

std::deque<ReplaySnapshot::Segment>::const_iterator ReplaySnapshot::SegmentOf(
    uint64_t number) const {
  return std::prev(std::upper_bound(
      segments_.begin(), segments_.end(), number,
      [](uint64_t row, const Segment& each) { return row < each.scan.header.first; }));
}

std::vector<ReplaySnapshot::Rows>::const_iterator ReplaySnapshot::RecordOf(const Segment& segment,
                                                                           uint64_t number) {
  return std::prev(
      std::upper_bound(segment.records.begin(), segment.records.end(), number,
                       [](uint64_t row, const Rows& each) { return row < each.first; }));
}

absl::Status ReplaySnapshot::Read(uint64_t first, int64_t count, char* out) const {
  const uint64_t stride = layout_.row_bytes();
  for (auto segment = SegmentOf(first); count > 0; ++segment) {
    for (auto record = RecordOf(*segment, first); count > 0 && record != segment->records.end();
         ++record) {
      const auto after = std::next(record);
      const uint64_t end = after == segment->records.end() ? segment->next() : after->first;
      const auto rows = std::min<uint64_t>(static_cast<uint64_t>(count), end - first);
      absl::Status status =
          segment->file.Read(record->offset + (first - record->first) * stride, rows * stride, out);
      if (!status.ok()) return status;
      out += rows * stride;
      first += rows;
      count -= static_cast<int64_t>(rows);
    }
  }
  return absl::OkStatus();
}

absl::Status ReplaySnapshot::ReadValue(uint64_t number, const VariableValue& value,
                                       char* out) const {
  const auto segment = SegmentOf(number);
  const auto record = RecordOf(*segment, number);
  const auto after = std::next(record);
  const uint64_t next = after == segment->records.end() ? segment->next() : after->first;
  const uint64_t begin =
      record->offset + (next - record->first) * layout_.row_bytes() + value.offset;
  if (begin + value.bytes > record->end) {
    return absl::DataLossError(absl::StrCat(segment->file.path(), ": transition ", number,
                                            " has a value beyond its record, which ends at byte ",
                                            record->end));
  }
  return segment->file.Read(begin, value.bytes, out);
}

}  // namespace genesis
