#include "replay/replay_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "replay/segment_index.h"
#include "replay/segment_scan.h"

namespace genesis {
namespace {

constexpr int64_t kMaxSegmentTransitions = 65536;
constexpr int64_t kSegmentsOfABuffer = 8;

absl::Status CheckCapacity(const std::string& folder, int64_t capacity) {
  constexpr int64_t kMaxCapacity = int64_t{1} << 40;
  if (capacity >= 1 && capacity <= kMaxCapacity) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": capacity is ", capacity, "; accepted: 1 to ", kMaxCapacity));
}

// Creates the folder and its parents, durably.
absl::Status CreateFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error);
  std::vector<std::filesystem::path> parents;
  for (; !error && !std::filesystem::exists(path, error); path = path.parent_path()) {
    parents.push_back(path.parent_path());
  }
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::UnknownError(absl::StrCat(folder, ": cannot be created: ", error.message()));
  }
  for (const std::filesystem::path& parent : parents) {
    if (absl::Status status = SyncFolder(parent.string()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

ReplayWriter::ReplayWriter(std::string folder, const ReplayOptions& options)
    : folder_(std::move(folder)), options_(options) {
  if (options_.segment_transitions <= 0) {
    options_.segment_transitions =
        std::clamp<int64_t>(options_.capacity / kSegmentsOfABuffer, 1, kMaxSegmentTransitions);
  }
}

std::string ReplayWriter::PathOf(uint64_t first) const {
  return absl::StrCat(folder_, "/", SegmentName(first));
}

absl::StatusOr<std::unique_ptr<ReplayWriter>> ReplayWriter::Open(const std::string& folder,
                                                                 const ReplayOptions& options) {
  if (absl::Status status = CheckCapacity(folder, options.capacity); !status.ok()) return status;
  if (absl::Status status = CreateFolder(folder); !status.ok()) return status;
  std::unique_ptr<ReplayWriter> writer(new ReplayWriter(folder, options));
  absl::StatusOr<ReplayFile> lock = ReplayFile::OpenToWrite(absl::StrCat(folder, "/lock"), 0);
  if (!lock.ok()) return lock.status();
  if (!lock->TryLock()) {
    return absl::FailedPreconditionError(absl::StrCat(
        folder, ": another writer holds this replay buffer; end it, or use another folder"));
  }
  writer->lock_ = *std::move(lock);
  if (absl::Status status = writer->Load(); !status.ok()) return status;
  return writer;
}

absl::Status ReplayWriter::Load() {
  const absl::StatusOr<std::vector<uint64_t>> firsts = ListSegments(folder_);
  if (!firsts.ok()) return firsts.status();
  for (const uint64_t first : *firsts) {
    if (!segments_.empty() && first != next_) {
      return absl::DataLossError(absl::StrCat(
          folder_, ": transitions ", next_, " to ", first,
          " are missing between two segments; restore the segment, or move the older ones away"));
    }
    if (segments_.empty()) next_ = first;
    if (absl::Status status = LoadSegment(first, first == firsts->back()); !status.ok()) {
      return status;
    }
  }
  Evict();
  return SyncFolder(folder_);
}

absl::Status ReplayWriter::CheckLayout(const SegmentHeader& header) const {
  if (header.layout == options_.layout) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(folder_, ": ", LayoutDifference(header.layout, options_.layout),
                   "; accepted: the same columns (in Python by columns=), or another buffer"));
}

absl::Status ReplayWriter::LoadSegment(uint64_t first, bool last) {
  absl::StatusOr<ReplayFile> file = ReplayFile::OpenToWrite(PathOf(first), 0);
  if (!file.ok()) return file.status();
  const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(*file);
  if (!header.ok()) return header.status();
  if (absl::Status status = CheckLayout(*header); !status.ok()) return status;
  const absl::StatusOr<uint64_t> size = file->Size();
  if (!size.ok()) return size.status();
  Segment segment{.first = first, .size = *size, .records = {}};
  std::optional<std::vector<RecordEntry>> index;
  if (!last) index = ReadSegmentIndex(folder_, *header, *size);
  if (index) {
    segment.records = *std::move(index);
  } else {
    absl::StatusOr<SegmentScan> scan =
        ScanSegment(*file, last, [](const RecordEntry&, absl::Span<const ReplayRowEnd>) {});
    if (!scan.ok()) return scan.status();
    if (scan->torn_size > 0) {
      absl::Status status = file->Truncate(scan->sound_size);
      if (status.ok()) status = file->Sync();
      if (!status.ok()) return status;
      repaired_ = absl::StrCat(file->path(), ": cut ", scan->torn_size,
                               " bytes of a batch that was never finished");
    }
    segment.size = scan->sound_size;
    segment.records = std::move(scan->records);
    if (!last) {
      // Ignore a failure: without the index, the next writer reads the segment again.
      WriteSegmentIndex(folder_, first, segment.size, segment.records).IgnoreError();
    }
  }
  for (const RecordEntry& record : segment.records) {
    Place& place = batches_[record.id];
    // A batch ID may be reused once its batch is evicted, so only in a later segment.
    if (place.segment != first) place = {.segment = first, .records = {}};
    place.records.push_back(record);
    next_ = record.first + record.count;
  }
  if (last) active_ = *std::move(file);
  bytes_ += segment.size;
  segments_.push_back(std::move(segment));
  return absl::OkStatus();
}

int64_t ReplayWriter::Transitions(const Segment& segment) const {
  if (segment.records.empty()) return 0;
  const RecordEntry& last = segment.records.back();
  return static_cast<int64_t>(last.first + last.count - segment.first);
}

absl::Status ReplayWriter::CheckBatch(const ReplayBatch& batch) const {
  if (batch.id().empty() || batch.id().size() > kMaxBatchId) {
    return absl::InvalidArgumentError(absl::StrCat("the batch id has ", batch.id().size(),
                                                   " bytes; accepted: 1 to ", kMaxBatchId));
  }
  const int64_t most = std::min<int64_t>(options_.capacity, kMaxBatchTransitions);
  if (batch.count() >= 1 && batch.count() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the batch has ", batch.count(), " transitions; accepted in this buffer: 1 to ", most));
}

absl::StatusOr<Appended> ReplayWriter::Append(ReplayBatch batch) {
  if (!broken_.ok()) return broken_;
  if (absl::Status status = CheckBatch(batch); !status.ok()) return status;
  const std::string id = batch.id();
  const int64_t count = batch.count();
  if (const auto known = batches_.find(id); known != batches_.end()) {
    return Repeat(known->second, std::move(batch));
  }
  const bool full = !segments_.empty() && !segments_.back().records.empty() &&
                    Transitions(segments_.back()) + count > options_.segment_transitions;
  if (segments_.empty() || full) {
    if (absl::Status status = BeginSegment(); !status.ok()) return status;
  }
  Segment& segment = segments_.back();
  absl::StatusOr<std::vector<RecordEntry>> records = WriteRecords(std::move(batch), segment.size);
  if (!records.ok()) return records.status();
  const Appended appended{.first = static_cast<int64_t>(next_), .count = count};
  bytes_ += records->back().end() - segment.size;
  segment.size = records->back().end();
  segment.records.insert(segment.records.end(), records->begin(), records->end());
  batches_[id] = {.segment = segment.first, .records = *std::move(records)};
  next_ += static_cast<uint64_t>(count);
  Evict();
  return appended;
}

absl::StatusOr<Appended> ReplayWriter::Repeat(const Place& place, ReplayBatch batch) const {
  const std::vector<RecordEntry>& records = place.records;
  const absl::StatusOr<ReplayFile> file = ReplayFile::OpenToRead(PathOf(place.segment));
  if (!file.ok()) return file.status();
  bool same = records.size() == batch.parts().size();
  for (size_t part = 0; same && part < records.size(); ++part) {
    absl::StatusOr<std::string> record = batch.TakeRecord(part);
    if (!record.ok()) return record.status();
    same = record->size() == records[part].end() - records[part].offset;
    if (!same) break;
    std::string stored(record->size(), '\0');
    absl::Status status = file->Read(records[part].offset, stored.size(), stored.data());
    if (!status.ok()) return status;
    same = absl::string_view(stored).substr(kRecordHeaderSize) ==
           absl::string_view(*record).substr(kRecordHeaderSize);
  }
  if (!same) {
    return absl::AlreadyExistsError(absl::StrCat("batch \"", batch.id(),
                                                 "\" is in the buffer with other transitions; "
                                                 "accepted: the same ones, or another id"));
  }
  return Appended{.first = static_cast<int64_t>(records.front().first),
                  .count = batch.count(),
                  .repeated = true};
}

absl::Status ReplayWriter::BeginSegment() {
  const std::string bytes =
      EncodeSegmentHeader({.layout = options_.layout, .first = next_, .size = 0});
  if (!segments_.empty()) {
    const Segment& done = segments_.back();
    WriteSegmentIndex(folder_, done.first, done.size, done.records).IgnoreError();
  }
  absl::Status status = WriteDurably(PathOf(next_), bytes);
  if (!status.ok()) return status;
  absl::StatusOr<ReplayFile> file = ReplayFile::OpenToWrite(PathOf(next_), 0);
  if (!file.ok()) return file.status();
  active_ = *std::move(file);
  segments_.push_back({.first = next_, .size = bytes.size(), .records = {}});
  bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RecordEntry>> ReplayWriter::WriteRecords(ReplayBatch batch,
                                                                    uint64_t offset) {
  std::vector<RecordEntry> records;
  RecordEntry next{.offset = offset, .first = next_, .id = batch.id()};
  next.id_size = static_cast<uint32_t>(batch.id().size());
  absl::Status status;
  for (size_t i = 0; status.ok() && i < batch.parts().size(); ++i) {
    const ReplayBatch::Part& part = batch.parts()[i];
    next.body_size = part.body_size;
    next.body_checksum = part.body_checksum;
    next.count = part.count;
    next.part = static_cast<uint32_t>(2 * i + (i + 1 < batch.parts().size() ? 1 : 0));
    absl::StatusOr<std::string> bytes = batch.TakeRecord(i);
    if (status = bytes.status(); !status.ok()) break;
    bytes->replace(0, kRecordHeaderSize, EncodeRecordHeader(next));
    status = active_.Write(next.offset, bytes->data(), bytes->size());
    records.push_back(next);
    next.offset = next.end();
    next.first += next.count;
  }
  if (!status.ok()) {
    // Cut off the incomplete batch so that the next append starts at a clean end.
    if (!active_.Truncate(offset).ok()) broken_ = status;
    return status;
  }
  // After a failed sync the kernel may drop the pages, and a second sync may report success.
  if (status = active_.Sync(); !status.ok()) {
    broken_ = status;
    return status;
  }
  return records;
}

void ReplayWriter::Evict() {
  while (segments_.size() > 1 && size() > options_.capacity) {
    const Segment& oldest = segments_.front();
    // Readers keep a removed file open. A segment that cannot be removed stays in the buffer with
    // all that follow it, because a gap would look like damage.
    if (unlink(PathOf(oldest.first).c_str()) != 0 && errno != ENOENT) return;
    unlink(absl::StrCat(folder_, "/", SegmentIndexName(oldest.first)).c_str());
    for (const RecordEntry& record : oldest.records) batches_.erase(record.id);
    bytes_ -= oldest.size;
    segments_.pop_front();
  }
}

}  // namespace genesis
