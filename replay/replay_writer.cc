#include "replay/replay_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"
#include "base/files/durable_file.h"
#include "replay/segment_index.h"
#include "replay/segment_scan.h"

namespace genesis {
namespace {

constexpr int64_t kMaxSegmentTransitions = 65536;
constexpr int64_t kSegmentsOfABuffer = 8;

absl::Status CheckOptions(const std::string& folder, const ReplayOptions& options) {
  const auto bad = [&](const char* name, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": ", name, " is ", value, "; accepted: 1 to ", most));
  };
  absl::Status status = bad("observation_size", options.layout.observation_size, kMaxReplayColumns);
  status.Update(bad("action_size", options.layout.action_size, kMaxReplayColumns));
  status.Update(bad("capacity", options.capacity, int64_t{1} << 40));
  return status;
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
  if (absl::Status status = CheckOptions(folder, options); !status.ok()) return status;
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

absl::Status ReplayWriter::CheckLayout(const ReplayFile& file) {
  const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(file);
  if (!header.ok()) return header.status();
  if (header->layout == options_.layout) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(folder_, ": holds transitions with observation_size ",
                   header->layout.observation_size, " and action_size ", header->layout.action_size,
                   "; asked for ", options_.layout.observation_size, " and ",
                   options_.layout.action_size, "; use another folder for them"));
}

absl::Status ReplayWriter::LoadSegment(uint64_t first, bool last) {
  absl::StatusOr<ReplayFile> file = ReplayFile::OpenToWrite(PathOf(first), 0);
  if (!file.ok()) return file.status();
  if (absl::Status status = CheckLayout(*file); !status.ok()) return status;
  const absl::StatusOr<uint64_t> size = file->Size();
  if (!size.ok()) return size.status();
  Segment segment{.first = first, .size = *size, .records = {}};
  std::optional<std::vector<RecordEntry>> index;
  if (!last) index = ReadSegmentIndex(folder_, first, *size);
  if (index) {
    segment.records = *std::move(index);
  } else {
    absl::StatusOr<SegmentScan> scan =
        ScanSegment(*file, last, [](const RecordEntry&, const std::string&) {});
    if (!scan.ok()) return scan.status();
    if (scan->torn_size > 0) {
      absl::Status status = file->Truncate(scan->sound_size);
      if (status.ok()) status = file->Sync();
      if (!status.ok()) return status;
      repaired_ = absl::StrCat(file->path(), ": cut ", scan->torn_size,
                               " bytes of a record that was never finished");
    }
    segment.size = scan->sound_size;
    segment.records = std::move(scan->records);
    if (!last) {
      // Ignore a failure: without the index, the next writer reads the segment again.
      WriteSegmentIndex(folder_, first, segment.size, segment.records).IgnoreError();
    }
  }
  for (const RecordEntry& record : segment.records) {
    batches_[record.id] = {.segment = first, .record = record};
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

absl::Status ReplayWriter::CheckBatch(const std::string& batch_id,
                                      absl::Span<const ReplayTransition> transitions) const {
  if (batch_id.empty() || batch_id.size() > kMaxBatchId) {
    return absl::InvalidArgumentError(
        absl::StrCat("the batch id has ", batch_id.size(), " bytes; accepted: 1 to ", kMaxBatchId));
  }
  const int64_t most = std::min<int64_t>(
      {options_.capacity, kMaxBatchTransitions,
       static_cast<int64_t>((kMaxBatchBytes - kMaxBatchId - 1) / options_.layout.row_bytes())});
  const auto count = static_cast<int64_t>(transitions.size());
  if (count < 1 || count > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the batch has ", count, " transitions; accepted in this buffer: 1 to ", most));
  }
  return CheckTransitions(options_.layout, transitions);
}

absl::StatusOr<Appended> ReplayWriter::Append(const std::string& batch_id,
                                              absl::Span<const ReplayTransition> transitions) {
  if (!broken_.ok()) return broken_;
  if (absl::Status status = CheckBatch(batch_id, transitions); !status.ok()) return status;
  const std::string body = EncodeBody(batch_id, transitions);
  if (const auto known = batches_.find(batch_id); known != batches_.end()) {
    return Repeat(known->second, body);
  }
  const auto count = static_cast<int64_t>(transitions.size());
  const bool full = !segments_.empty() && !segments_.back().records.empty() &&
                    Transitions(segments_.back()) + count > options_.segment_transitions;
  if (segments_.empty() || full) {
    if (absl::Status status = BeginSegment(); !status.ok()) return status;
  }
  Segment& segment = segments_.back();
  const RecordEntry record{.offset = segment.size,
                           .body_size = body.size(),
                           .body_checksum = Crc32c(0, body.data(), body.size()),
                           .first = next_,
                           .count = static_cast<uint32_t>(count),
                           .id_size = static_cast<uint32_t>(batch_id.size()),
                           .id = batch_id};
  if (absl::Status status = WriteRecord(record, body); !status.ok()) return status;
  bytes_ += record.end() - segment.size;
  segment.size = record.end();
  segment.records.push_back(record);
  batches_[batch_id] = {.segment = segment.first, .record = record};
  next_ += record.count;
  Evict();
  return Appended{.first = static_cast<int64_t>(record.first), .count = count};
}

absl::StatusOr<Appended> ReplayWriter::Repeat(const Place& place, const std::string& body) const {
  const RecordEntry& record = place.record;
  bool same = record.body_size == body.size();
  if (same) {
    const absl::StatusOr<ReplayFile> file = ReplayFile::OpenToRead(PathOf(place.segment));
    if (!file.ok()) return file.status();
    std::string stored(body.size(), '\0');
    absl::Status status =
        file->Read(record.offset + kRecordHeaderSize, stored.size(), stored.data());
    if (!status.ok()) return status;
    same = stored == body;
  }
  if (!same) {
    return absl::AlreadyExistsError(absl::StrCat("batch \"", record.id,
                                                 "\" is in the buffer with other transitions; "
                                                 "accepted: the same ones, or another id"));
  }
  return Appended{
      .first = static_cast<int64_t>(record.first), .count = record.count, .repeated = true};
}

absl::Status ReplayWriter::BeginSegment() {
  const SegmentHeader header{.layout = options_.layout, .first = next_};
  if (!segments_.empty()) {
    const Segment& done = segments_.back();
    WriteSegmentIndex(folder_, done.first, done.size, done.records).IgnoreError();
  }
  absl::Status status =
      WriteDurably(absl::StrCat(folder_, "/", SegmentName(next_)), EncodeSegmentHeader(header));
  if (!status.ok()) return status;
  absl::StatusOr<ReplayFile> file = ReplayFile::OpenToWrite(PathOf(next_), 0);
  if (!file.ok()) return file.status();
  active_ = *std::move(file);
  segments_.push_back({.first = next_, .size = kSegmentHeaderSize, .records = {}});
  bytes_ += kSegmentHeaderSize;
  return absl::OkStatus();
}

absl::Status ReplayWriter::WriteRecord(const RecordEntry& record, const std::string& body) {
  const std::string bytes = EncodeRecordHeader(record) + body;
  absl::Status status = active_.Write(record.offset, bytes.data(), bytes.size());
  if (!status.ok()) {
    // Cut off the incomplete record so that the next append starts at a clean end.
    if (!active_.Truncate(record.offset).ok()) broken_ = status;
    return status;
  }
  // After a failed sync the kernel may drop the pages, and a second sync may report success.
  if (status = active_.Sync(); !status.ok()) broken_ = status;
  return status;
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
