#include "replay/replay_batch.h"

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"
#include "replay/segment.h"

namespace genesis {

absl::Status ReplayBatch::Add(const ReplayLayout& layout, const ReplayRows& rows) {
  if (absl::Status status = CheckRows(layout, rows, count_); !status.ok()) return status;
  if (count_ + rows.count() > kMaxBatchTransitions) {
    return absl::InvalidArgumentError(absl::StrCat("the batch has ", count_ + rows.count(),
                                                   " transitions; accepted: at most ",
                                                   kMaxBatchTransitions));
  }
  Part part;
  part.count = rows.count();
  part.record.append(kRecordHeaderSize, '\0');
  part.record += id_;
  part.record.resize((part.record.size() + 7) / 8 * 8);
  EncodeRows(layout, rows, part.record);
  part.body_size = part.record.size() - kRecordHeaderSize;
  part.body_checksum = Crc32c(0, part.record.data() + kRecordHeaderSize, part.body_size);
  if (bytes_ + part.body_size > kMaxBatchBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the batch has ", bytes_ + part.body_size,
                                                   " bytes; accepted: at most ", kMaxBatchBytes));
  }
  if (held_ > 0 && held_ + part.body_size > kMaxHeldBytes) {
    if (absl::Status status = WriteHeld(); !status.ok()) return status;
  }
  count_ += rows.count();
  bytes_ += part.body_size;
  held_ += part.body_size;
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

// Moves all parts that are in memory to the file.
absl::Status ReplayBatch::WriteHeld() {
  if (!file_) {
    absl::StatusOr<ReplayFile> file = ReplayFile::Unnamed(folder_);
    if (!file.ok()) return file.status();
    file_ = *std::move(file);
  }
  for (Part& part : parts_) {
    if (part.record.empty()) continue;
    // Moved out, because assigning an empty string would keep the memory.
    const std::string record = std::move(part.record);
    part.record.clear();
    absl::Status status = file_->Write(written_, record.data(), record.size());
    if (!status.ok()) return status;
    part.offset = written_;
    written_ += record.size();
  }
  held_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReplayBatch::TakeRecord(size_t index) {
  Part& part = parts_[index];
  if (!part.record.empty()) return std::move(part.record);
  std::string record(kRecordHeaderSize + part.body_size, '\0');
  absl::Status status = file_->Read(part.offset, record.size(), record.data());
  if (!status.ok()) return status;
  return record;
}

}  // namespace genesis
