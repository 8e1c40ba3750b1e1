#include "server/auth/dataset_owners.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files/durable_file.h"
#include "base/files/errno_status.h"
#include "base/text/field_error.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr char kFolder[] = ".owners";

absl::Status Unreadable(const std::string& path, const std::string& error) {
  return absl::FailedPreconditionError(
      absl::StrCat("the record of owners ", path, " cannot be read: ", error,
                   "; fix its permissions, or remove it to give the dataset to the admins"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DatasetOwners>> DatasetOwners::Open(
    std::string root, Visibility visibility, CheckpointBytes checkpoint_bytes) {
  std::unique_ptr<DatasetOwners> owners(
      new DatasetOwners(std::move(root), visibility, std::move(checkpoint_bytes)));
  absl::Status loaded = owners->Load("");
  if (!loaded.ok()) return loaded;
  owners->ForgetMissing();
  return owners;
}

absl::Status DatasetOwners::Load(const std::string& folder) {
  const std::string path = PathOf(folder);
  std::error_code error;
  if (!fs::exists(path, error) && !error) return absl::OkStatus();  // No dataset has an owner yet.
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const std::string name = folder + at->path().filename().string();
    if (at->is_directory()) {
      if (absl::Status status = Load(name + "/"); !status.ok()) return status;
      continue;
    }
    std::ifstream file(at->path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) return Unreadable(at->path().string(), "reading failed");
    Replace(name, {.owners = absl::StrSplit(text, '\n', absl::SkipEmpty())});
  }
  return error ? Unreadable(path, error.message()) : absl::OkStatus();
}

void DatasetOwners::ForgetMissing() {
  std::vector<std::string> missing;
  {
    const absl::MutexLock lock(&mutex_);
    for (const auto& [dataset, record] : records_) {
      std::error_code error;
      const bool exists = fs::exists(fs::path(root_) / dataset, error);
      if (!exists && !error) missing.push_back(dataset);
    }
  }
  for (const std::string& dataset : missing) {
    spdlog::info("dataset {} is gone; its owners are forgotten", QuoteValue(dataset));
    Forget(dataset);
  }
}

std::string DatasetOwners::PathOf(const std::string& dataset) const {
  return absl::StrCat(root_, "/", kFolder, "/", dataset);
}

DatasetOwners::Record DatasetOwners::Find(const std::string& dataset) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = records_.find(dataset);
  return found == records_.end() ? Record() : found->second;
}

void DatasetOwners::Replace(const std::string& dataset, const Record& record) {
  const absl::MutexLock lock(&mutex_);
  Record& kept = records_[dataset];
  for (const std::string& owner : kept.owners) bytes_[owner] -= kept.bytes;
  for (const std::string& owner : record.owners) bytes_[owner] += record.bytes;
  kept = record;
  if (record.owners.empty()) records_.erase(dataset);
}

absl::Status DatasetOwners::Write(const std::string& dataset, const Record& record) {
  const fs::path path = PathOf(dataset);
  std::error_code error;
  if (record.owners.empty()) {
    fs::remove(path, error);
    return error ? ErrnoStatus(absl::StrCat(path.string(), ": cannot be removed"), error.value())
                 : absl::OkStatus();
  }
  // If the folder cannot be created, neither can the file.
  if (fs::create_directories(path.parent_path(), error)) {
    for (const fs::path& parent : {path.parent_path().parent_path(), fs::path(root_)}) {
      if (absl::Status status = SyncFolder(parent.string()); !status.ok()) return status;
    }
  }
  return WriteDurably(path.string(), absl::StrJoin(record.owners, "\n"));
}

bool DatasetOwners::Has(const std::string& dataset) const { return !Find(dataset).owners.empty(); }

std::vector<std::string> DatasetOwners::Of(const Caller& caller, const std::string& dataset) const {
  std::vector<std::string> known;
  for (const std::string& owner : Find(dataset).owners) {
    if (visibility_.Sees(caller, owner)) known.push_back(owner);
  }
  return known;
}

bool DatasetOwners::Sees(const Caller& caller, const std::string& path) const {
  if (visibility_.SeesAll(caller)) return true;
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  for (const std::string& part : parts) {
    if (absl::StartsWith(part, ".")) return false;  // Such as an incomplete upload.
  }
  for (const std::string& dataset : {path, parts.front()}) {
    const std::set<std::string> owners = Find(dataset).owners;
    if (!owners.empty()) return owners.contains(caller.name);
  }
  return true;
}

absl::Status DatasetOwners::CheckChange(const Caller& caller, const std::string& dataset) const {
  const std::set<std::string> owners = Find(dataset).owners;
  const std::string owner = owners.contains(caller.name) ? caller.name
                            : owners.empty()             ? ""
                                                         : *owners.begin();
  return CheckOwner(caller, owner, absl::StrCat("dataset ", QuoteValue(dataset)));
}

absl::Status DatasetOwners::CheckRoom(const std::string& owner, int64_t more,
                                      const std::string& what) const {
  const int64_t quota = quota_;
  if (quota == 0) return absl::OkStatus();
  const absl::StatusOr<int64_t> checkpoints = checkpoint_bytes_(owner);
  if (!checkpoints.ok()) return checkpoints.status();
  int64_t used = *checkpoints;
  {
    const absl::MutexLock lock(&mutex_);
    if (const auto found = bytes_.find(owner); found != bytes_.end()) used += found->second;
  }
  if (more <= quota - used) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(QuoteValue(owner), " stores ", used, " bytes and quotas.stored_bytes is ", quota,
                   ", which leaves no room for ", what,
                   "; delete datasets (`genesisctl dataset-delete`), incomplete uploads (by the "
                   "name uploads/SHA256.KIND) or checkpoints (`genesisctl checkpoint-delete`) of "
                   "that owner"));
}

absl::Status DatasetOwners::CheckRoomOf(const std::string& dataset, int64_t more,
                                        const std::string& what) const {
  for (const std::string& owner : Find(dataset).owners) {
    if (absl::Status room = CheckRoom(owner, more, what); !room.ok()) return room;
  }
  return absl::OkStatus();
}

absl::Status DatasetOwners::Add(const std::string& dataset, const std::string& owner,
                                int64_t bytes) {
  const absl::MutexLock lock(&files_);
  Record record = Find(dataset);
  if (!record.owners.insert(owner).second) return absl::OkStatus();
  record.bytes = bytes;
  absl::Status status = CheckRoom(owner, bytes, absl::StrCat(bytes, " bytes more"));
  if (status.ok()) status = Write(dataset, record);
  if (status.ok()) Replace(dataset, record);
  return status;
}

absl::Status DatasetOwners::Copy(const std::string& from, const std::string& to) {
  const absl::MutexLock lock(&files_);
  const Record record = Find(from);
  if (absl::Status status = Write(to, record); !status.ok()) return status;
  Replace(to, record);
  return absl::OkStatus();
}

void DatasetOwners::SetBytes(const std::string& dataset, int64_t bytes) {
  const absl::MutexLock lock(&mutex_);
  const auto found = records_.find(dataset);
  if (found == records_.end()) return;
  for (const std::string& owner : found->second.owners) {
    bytes_[owner] += bytes - found->second.bytes;
  }
  found->second.bytes = bytes;
}

absl::StatusOr<bool> DatasetOwners::Leave(const Caller& caller, const std::string& dataset) {
  const absl::MutexLock lock(&files_);
  Record record = Find(dataset);
  if (caller.role == Role::kAdmin || record.owners.size() < 2) return false;
  record.owners.erase(caller.name);
  if (absl::Status status = Write(dataset, record); !status.ok()) return status;
  Replace(dataset, record);
  return true;
}

absl::Status DatasetOwners::Delete(const Caller& caller, const std::string& dataset,
                                   const std::function<absl::Status()>& remove) {
  if (absl::Status allowed = CheckChange(caller, dataset); !allowed.ok()) return allowed;
  const absl::StatusOr<bool> stays = Leave(caller, dataset);
  if (!stays.ok() || *stays) return stays.status();
  absl::Status removed = remove();
  if (removed.ok()) Forget(dataset);
  return removed;
}

void DatasetOwners::Forget(const std::string& dataset) {
  const absl::MutexLock lock(&files_);
  Replace(dataset, Record());
  const absl::Status removed = Write(dataset, Record());
  if (!removed.ok()) spdlog::warn("{}", std::string(removed.message()));
}

}  // namespace genesis
