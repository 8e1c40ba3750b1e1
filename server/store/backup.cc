#include "server/store/backup.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/store/sqlite.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 10;
constexpr int kMaxUnderWay = 4;
constexpr char kUnfinished[] = ".unfinished";

absl::Status FileError(const std::string& what, const std::string& path, int error) {
  const std::string message =
      absl::StrCat("no backup was made: cannot ", what, " ", path, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(absl::StrCat(message, "; free some space"));
  }
  return absl::FailedPreconditionError(absl::StrCat(message, "; fix its permissions"));
}

absl::Status SyncPath(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError("open", path, errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : FileError("write", path, error);
}

// Raises the next event number of the copy far above those of the original, so that a daemon on the
// copy never reuses a number, and a cursor from after the copy skips none of its events.
absl::Status LeapSequence(const std::string& path) {
  constexpr int64_t kLeap = 1'000'000'000;
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path);
  if (!database.ok()) return database.status();
  // With DELETE the copy remains one file.
  return (*database)->Execute(
      absl::StrCat("PRAGMA journal_mode=DELETE; BEGIN; INSERT INTO sqlite_sequence(name, seq) "
                   "SELECT 'events', 0 "
                   "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'events'); "
                   "UPDATE sqlite_sequence SET seq = seq + ",
                   kLeap, " WHERE name = 'events'; COMMIT"));
}

absl::Status Copy(const std::string& from, const std::string& to) {
  Database::Options options;
  options.access = Database::Access::kReadOnly;
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(from, options);
  if (!database.ok()) return database.status();
  absl::StatusOr<Statement> copy = (*database)->Prepare("VACUUM INTO ?1");
  if (!copy.ok()) return copy.status();
  absl::Status status = copy->Bind(1, to).Run();
  if (status.ok()) status = LeapSequence(to);
  return status.ok() ? SyncPath(to) : status;
}

// Removes unfinished copies and all but the newest 10, whose names sort by time. Ignores errors.
void RemoveOld(const std::string& dir) {
  std::vector<std::string> copies;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_copy = absl::StartsWith(name, "jobs-") && absl::EndsWith(name, ".db");
    const bool is_left_over = absl::StartsWith(name, "jobs-") && absl::EndsWith(name, kUnfinished);
    if (is_copy) copies.push_back(entry.path().string());
    if (is_left_over) fs::remove(entry.path(), ignored);
  }
  if (copies.size() <= kKept) return;
  std::sort(copies.begin(), copies.end());
  copies.resize(copies.size() - kKept);
  for (const std::string& old : copies) fs::remove(old, ignored);
}

}  // namespace

absl::StatusOr<training::v1::BackupStoreResponse> MakeBackup(const std::string& data_dir) {
  const std::string dir = data_dir + "/backups";
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return FileError("create folder", dir, error.value());
  const std::string path = absl::StrCat(
      dir, "/jobs-", absl::FormatTime("%Y%m%dT%H%M%E6SZ", absl::Now(), absl::UTCTimeZone()), ".db");
  const std::string unfinished = path + kUnfinished;
  absl::Status status = Copy(data_dir + "/jobs.db", unfinished);
  if (status.ok()) {
    fs::rename(unfinished, path, error);
    if (error) status = FileError("write", path, error.value());
  }
  if (status.ok()) status = SyncPath(dir);
  RemoveOld(dir);
  if (!status.ok()) return status;
  training::v1::BackupStoreResponse response;
  response.set_path(path);
  response.set_size_bytes(static_cast<int64_t>(fs::file_size(path, error)));
  spdlog::info("backup of the store: {}, {} bytes", path, response.size_bytes());
  return response;
}

void StoreBackup::Start(const Callback<training::v1::BackupStoreResponse>& callback) {
  if (++under_way_ > kMaxUnderWay) {
    --under_way_;
    callback(absl::ResourceExhaustedError(
        absl::StrCat(kMaxUnderWay, " backups are under way; try again when one has ended")));
    return;
  }
  thread_.Post([this, callback] {
    const absl::StatusOr<training::v1::BackupStoreResponse> made = MakeBackup(data_dir_);
    if (!made.ok()) spdlog::error("backup of the store: {}", made.status().ToString());
    --under_way_;
    callback(made);
  });
}

}  // namespace genesis
