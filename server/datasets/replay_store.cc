#include "server/datasets/replay_store.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "replay/capacity.h"
#include "replay/segment_scan.h"
#include "server/datasets/dataset_folder.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// While one thread waits for a slow disk, the other can serve buffers on a faster one.
constexpr int kAppendThreads = 2;

// Refuses links, which could lead out of the root, and files, which are not buffers.
absl::Status CheckFolder(const std::string& root, const std::string& dataset) {
  std::error_code error;
  const auto type = std::filesystem::symlink_status(absl::StrCat(root, "/", dataset), error).type();
  if (type == std::filesystem::file_type::not_found ||
      type == std::filesystem::file_type::directory) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "dataset ", QuoteValue(dataset), " is ",
      type == std::filesystem::file_type::symlink ? "a link" : "no folder",
      "; accepted: a folder in the dataset root ", root, ", or a name that is free there"));
}

// Returns true if the batch caused the error, which leaves the writer usable.
bool IsFaultOfBatch(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsAlreadyExists(status);
}

}  // namespace

ReplayStore::ReplayStore(DatasetOwners* owners) : owners_(owners), threads_(kAppendThreads) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(root(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (owners_->Has(name)) owners_->SetBytes(name, BytesIn(at->path().string()));
  }
}

ReplayStore::~ReplayStore() = default;

absl::Status ReplayStore::BeginStream() {
  if (++streams_ <= kMaxStreams) return absl::OkStatus();
  --streams_;
  return absl::ResourceExhaustedError(
      absl::StrCat(kMaxStreams, " streams append at this time; accepted: at most ", kMaxStreams,
                   "; try again when one has ended"));
}

absl::Status ReplayStore::Join(const std::string& dataset) {
  absl::MutexLock lock(&mutex_);
  if (removing_.contains(dataset)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset ", QuoteValue(dataset), " is being removed; append again when it is gone"));
  }
  ++joined_[dataset];
  return absl::OkStatus();
}

void ReplayStore::Leave(const std::string& dataset) {
  absl::MutexLock lock(&mutex_);
  const auto found = joined_.find(dataset);
  if (--found->second == 0) joined_.erase(found);
}

absl::Status ReplayStore::Remove(const std::string& dataset,
                                 const std::function<absl::Status()>& removal) {
  {
    absl::MutexLock lock(&mutex_);
    if (joined_.contains(dataset)) {
      return absl::FailedPreconditionError(
          absl::StrCat("an append to dataset ", QuoteValue(dataset),
                       " is open; end it, or delete the dataset when it has ended"));
    }
    if (!removing_.insert(dataset).second) {
      return absl::FailedPreconditionError(
          absl::StrCat("dataset ", QuoteValue(dataset), " is being removed already"));
    }
    buffers_.erase(dataset);  // No stream appends to it, so no append uses it.
  }
  absl::Status removed = removal();
  absl::MutexLock lock(&mutex_);
  removing_.erase(dataset);
  return removed;
}

size_t ReplayStore::open() const {
  absl::MutexLock lock(&mutex_);
  return buffers_.size();
}

std::shared_ptr<ReplayStore::Buffer> ReplayStore::Take(const std::string& dataset) {
  absl::MutexLock lock(&mutex_);
  auto found = buffers_.find(dataset);
  if (found == buffers_.end()) {
    if (buffers_.size() >= kMaxOpen) CloseOldest();
    found = buffers_.emplace(dataset, std::make_shared<Buffer>()).first;
  }
  ++found->second->users;
  found->second->last_use = ++uses_;
  return found->second;
}

void ReplayStore::GiveBack(Buffer& buffer) {
  absl::MutexLock lock(&mutex_);
  --buffer.users;
}

// Closes under the lock, so that the folder is free when the buffer is opened again. Does not
// block, because appends are already synced.
void ReplayStore::CloseOldest() {
  auto oldest = buffers_.end();
  for (auto it = buffers_.begin(); it != buffers_.end(); ++it) {
    if (it->second->users > 0) continue;
    if (oldest == buffers_.end() || it->second->last_use < oldest->second->last_use) oldest = it;
  }
  // If all are in use (at most one per thread, during an append), none is closed.
  if (oldest != buffers_.end()) buffers_.erase(oldest);
}

bool ReplayStore::IsNew(const std::string& dataset) const {
  std::error_code error;
  return !owners_->Has(dataset) &&
         std::filesystem::symlink_status(absl::StrCat(root(), "/", dataset), error).type() ==
             std::filesystem::file_type::not_found;
}

absl::Status ReplayStore::Admit(const AppendTarget& target) const {
  return IsNew(target.dataset) ? owners_->Add(target.dataset, target.caller.name, 0)
                               : owners_->CheckChange(target.caller, target.dataset);
}

absl::StatusOr<ReplayLayout> ReplayStore::LayoutOf(const AppendTarget& target) const {
  absl::Status status = CheckFolder(root(), target.dataset);
  if (status.ok() && !IsNew(target.dataset)) {
    status = owners_->CheckChange(target.caller, target.dataset);
  }
  if (!status.ok()) return status;
  absl::StatusOr<ReplayLayout> layout = ReadReplayLayout(absl::StrCat(root(), "/", target.dataset));
  if (!absl::IsNotFound(layout.status())) return layout;
  return absl::InvalidArgumentError(
      absl::StrCat("dataset ", QuoteValue(target.dataset),
                   " is a new buffer; accepted: a first message that declares it, by columns or by "
                   "observation_size and action_size"));
}

absl::Status ReplayStore::CheckRoom(const AppendTarget& target, const ReplayBatch& batch) const {
  const auto bytes = static_cast<int64_t>(batch.bytes());
  const std::string what = absl::StrCat("batch ", QuoteValue(batch.id()), " of ", bytes, " bytes");
  if (IsNew(target.dataset)) return owners_->CheckRoom(target.caller.name, bytes, what);
  absl::Status status = owners_->CheckChange(target.caller, target.dataset);
  return status.ok() ? owners_->CheckRoomOf(target.dataset, bytes, what) : status;
}

absl::Status ReplayStore::Open(const AppendTarget& target, Buffer& buffer) {
  const std::string folder = absl::StrCat(root(), "/", target.dataset);
  if (absl::Status status = CheckFolder(root(), target.dataset); !status.ok()) return status;
  const absl::StatusOr<std::optional<int64_t>> kept = ReadReplayCapacity(folder);
  if (!kept.ok()) return kept.status();
  const int64_t capacity = target.capacity > 0 ? target.capacity : kept->value_or(kDefaultCapacity);
  absl::StatusOr<std::unique_ptr<ReplayWriter>> writer =
      ReplayWriter::Open(folder, {.layout = target.layout, .capacity = capacity});
  if (!writer.ok()) return writer.status();
  if (*kept != capacity) {
    if (absl::Status status = WriteReplayCapacity(folder, capacity); !status.ok()) return status;
  }
  if (!(*writer)->repaired().empty()) spdlog::warn("{}", (*writer)->repaired());
  spdlog::info("dataset {}: appending after {} transitions of at most {}", target.dataset,
               (*writer)->size(), capacity);
  owners_->SetBytes(target.dataset, static_cast<int64_t>((*writer)->bytes()));
  buffer.writer = *std::move(writer);
  buffer.layout = target.layout;
  buffer.capacity = capacity;
  return absl::OkStatus();
}

absl::StatusOr<ReplayStore::Result> ReplayStore::Append(const AppendTarget& target,
                                                        ReplayBatch batch) {
  const std::shared_ptr<Buffer> buffer = Take(target.dataset);
  const absl::Cleanup give_back = [&] { GiveBack(*buffer); };
  absl::MutexLock lock(&buffer->mutex);
  if (absl::Status status = Admit(target); !status.ok()) return status;
  const bool other_capacity = target.capacity > 0 && target.capacity != buffer->capacity;
  const bool other_layout = buffer->writer != nullptr && buffer->layout != target.layout;
  if (other_capacity || other_layout) buffer->writer.reset();
  if (buffer->writer == nullptr) {
    if (absl::Status status = Open(target, *buffer); !status.ok()) return status;
  }
  if (!buffer->writer->Has(batch.id())) {
    if (absl::Status room = CheckRoom(target, batch); !room.ok()) return room;
  }
  const absl::StatusOr<Appended> appended = buffer->writer->Append(std::move(batch));
  if (!appended.ok()) {
    if (!IsFaultOfBatch(appended.status())) {
      spdlog::error("dataset {}: {}", target.dataset, std::string(appended.status().message()));
      buffer->writer.reset();
    }
    return appended.status();
  }
  owners_->SetBytes(target.dataset, static_cast<int64_t>(buffer->writer->bytes()));
  return Result{*appended, buffer->writer->size()};
}

}  // namespace genesis
