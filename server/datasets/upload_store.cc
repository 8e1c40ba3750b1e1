#include "server/datasets/upload_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Upload;

// While one thread computes hashes, the other can write.
constexpr int kUploadThreads = 2;
constexpr char kFolder[] = "uploads";
constexpr char kPartPrefix[] = ".part-";
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;
constexpr size_t kMaxKind = 16;
constexpr size_t kDigestDigits = 64;
constexpr int64_t kSecondsUntilForgotten = int64_t{7} * 24 * 3600;
constexpr size_t kReadBytes = size_t{1} << 20;

std::string NameOf(const UploadStore::File& file) {
  return absl::StrCat(file.sha256, ".", file.kind);
}

// Returns a name with the size, so that uploads announced with two sizes do not collide.
std::string PartNameOf(const UploadStore::File& file) {
  return absl::StrCat(kPartPrefix, file.size_bytes, "-", NameOf(file));
}

// Returns the announced size of an incomplete upload; nullopt for the name of another file.
std::optional<int64_t> AnnouncedBytes(absl::string_view name) {
  int64_t bytes = 0;
  if (!absl::ConsumePrefix(&name, kPartPrefix)) return std::nullopt;
  if (!absl::SimpleAtoi(name.substr(0, name.find('-')), &bytes)) return std::nullopt;
  return bytes;
}

// Returns the dataset name of a file in the folder.
std::string DatasetOf(const std::string& name) { return absl::StrCat(kFolder, "/", name); }

std::string PathOf(const std::string& root, const std::string& name) {
  return absl::StrCat(root, "/", kFolder, "/", name);
}

absl::Status Check(const UploadStore::File& file) {
  std::vector<FieldError> faults;
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
  const auto is_kind = [](char c) { return absl::ascii_isdigit(c) || absl::ascii_islower(c); };
  if (file.sha256.size() != kDigestDigits ||
      !std::all_of(file.sha256.begin(), file.sha256.end(), is_digit)) {
    faults.push_back({"sha256", QuoteValue(file.sha256),
                      "the SHA-256 of the file: 64 lower-case hexadecimal digits"});
  }
  if (file.kind.empty() || file.kind.size() > kMaxKind ||
      !std::all_of(file.kind.begin(), file.kind.end(), is_kind)) {
    faults.push_back(
        {"kind", QuoteValue(file.kind),
         "the ending of the file's name without a dot, such as \"npz\": 1 to 16 lower-case "
         "letters and digits"});
  }
  if (file.size_bytes < 1 || file.size_bytes > kMaxFileBytes) {
    faults.push_back({"size_bytes", absl::StrCat(file.size_bytes),
                      absl::StrCat("the size of the file: 1 to ", kMaxFileBytes)});
  }
  return faults.empty() ? absl::OkStatus() : ToStatus(faults);
}

absl::Status PieceFault(int64_t size, std::string accepted) {
  const std::vector<FieldError> faults{
      {"piece", absl::StrCat(size, " bytes"), std::move(accepted)}};
  return ToStatus(faults);
}

// Calls `see(name, status)` for each regular file in the folder.
template <typename See>
absl::Status ForEachFile(const FileHandle& folder, const std::string& path, See see) {
  const int copy = openat(folder.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy < 0 ? nullptr : fdopendir(copy);
  if (entries == nullptr) {
    const int error = errno;
    if (copy >= 0) close(copy);
    return FileFault(path, error);
  }
  while (const dirent* const entry = readdir(entries)) {
    struct stat info = {};
    if (fstatat(folder.fd(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode)) see(std::string(entry->d_name), info);
  }
  closedir(entries);
  return absl::OkStatus();
}

absl::Status WriteAt(const FileHandle& file, const std::string& path, int64_t offset,
                     absl::string_view bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = pwrite(file.fd(), bytes.data() + done, bytes.size() - done,
                                 offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      // Remove the part of the piece that was written.
      if (ftruncate(file.fd(), offset) != 0) return FileFault(path, errno);
      return FileFault(path, error);
    }
    done += static_cast<size_t>(count);
  }
  // Start the write-back early, so that little is left to sync at the end of a large file.
  sync_file_range(file.fd(), offset, static_cast<off_t>(bytes.size()), SYNC_FILE_RANGE_WRITE);
  return absl::OkStatus();
}

// Returns RESOURCE_EXHAUSTED if the disk lacks `more` free bytes. Called before the
// first of them is written.
absl::Status CheckDisk(const FileHandle& folder, const std::string& path,
                       const UploadStore::File& file, int64_t more) {
  struct statvfs disk = {};
  if (fstatvfs(folder.fd(), &disk) != 0) return FileFault(path, errno);
  const uint64_t available = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (static_cast<uint64_t>(more) <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": the disk has ", available, " bytes free and file ", NameOf(file),
                   " needs ", more, "; free some, or set datasets.root to a larger disk"));
}

Upload Received(int64_t bytes) {
  Upload upload;
  upload.set_received_bytes(bytes);
  return upload;
}

Upload Whole(const UploadStore::File& file) {
  Upload upload = Received(file.size_bytes);
  upload.set_path(DatasetOf(NameOf(file)));
  return upload;
}

}  // namespace

// Exclusive use of a file and its hash by one call. Two calls would write the same bytes twice.
class UploadStore::Turn {
 public:
  Turn(UploadStore* store, const std::string& name) : store_(store) {
    const absl::MutexLock lock(&store_->mutex_);
    auto& hashes = store_->hashes_;
    auto at = hashes.find(name);
    if (at == hashes.end()) {
      if (hashes.size() >= kMaxHashes) ForgetOldest();
      at = hashes.emplace(name, std::make_unique<Hash>()).first;
    } else if (at->second->busy) {
      return;
    }
    hash_ = at->second.get();
    hash_->busy = true;
    hash_->last_use = ++store_->uses_;
    name_ = name;
  }
  ~Turn() {
    if (hash_ == nullptr) return;
    const absl::MutexLock lock(&store_->mutex_);
    hash_->busy = false;
    if (over_) store_->hashes_.erase(name_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Returns null if another call is using the file.
  Hash* hash() const { return hash_; }
  // Called when the file is complete or gone; its hash is then dropped.
  void SetOver() { over_ = true; }

 private:
  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mutex_) {
    auto oldest = store_->hashes_.end();
    for (auto at = store_->hashes_.begin(); at != store_->hashes_.end(); ++at) {
      if (at->second->busy) continue;
      if (oldest == store_->hashes_.end() || at->second->last_use < oldest->second->last_use) {
        oldest = at;
      }
    }
    if (oldest != store_->hashes_.end()) store_->hashes_.erase(oldest);
  }

  UploadStore* const store_;
  std::string name_;
  Hash* hash_ = nullptr;
  bool over_ = false;
};

UploadStore::UploadStore(DatasetOwners* owners, int64_t max_bytes)
    : owners_(owners), root_(owners->root()), max_bytes_(max_bytes), threads_(kUploadThreads) {
  // Created now, so that no caller can create and own a replay buffer of this name.
  const absl::StatusOr<FileHandle> folder = OpenFolder();
  if (!folder.ok()) return;
  const int64_t now = std::time(nullptr);
  const absl::Status swept = ForEachFile(
      *folder, PathOf(root_, ""), [&](const std::string& name, const struct stat& info) {
        owners_->SetBytes(DatasetOf(name), AnnouncedBytes(name).value_or(info.st_size));
        if (!absl::StartsWith(name, kPartPrefix)) return;
        if (now - info.st_mtim.tv_sec < kSecondsUntilForgotten) return;
        unlinkat(folder->fd(), name.c_str(), 0);
        owners_->Forget(DatasetOf(name));
        spdlog::info("uploads: removed {}, incomplete and unchanged for a week", name);
      });
  if (!swept.ok()) spdlog::warn("uploads: {}", std::string(swept.message()));
}

absl::Status UploadStore::Post(std::function<void()> task) {
  if (threads_.waiting() >= kMaxWaiting) {
    return absl::UnavailableError(
        absl::StrCat(kMaxWaiting, " pieces of uploads wait for the disk; repeat the call"));
  }
  threads_.Post(std::move(task));
  return absl::OkStatus();
}

absl::StatusOr<FileHandle> UploadStore::OpenFolder() const {
  const std::string path = absl::StrCat(root_, "/", kFolder);
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return FileFault(path, errno);
  return OpenBeneath(root_, kFolder, O_RDONLY | O_DIRECTORY);
}

absl::StatusOr<Upload> UploadStore::FindWhole(const FileHandle& folder, const File& file) const {
  const std::string name = NameOf(file);
  struct stat info = {};
  if (fstatat(folder.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return FileFault(PathOf(root_, name), errno);
  }
  if (!S_ISREG(info.st_mode) || info.st_size != file.size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("size_bytes is ", file.size_bytes, "; accepted: ", info.st_size,
                     ", the size of the file with this SHA-256, which is here already"));
  }
  return Whole(file);
}

absl::Status UploadStore::CheckSpace(const FileHandle& folder, const File& file,
                                     int64_t more) const {
  int64_t used = 0;
  absl::Status status =
      ForEachFile(folder, PathOf(root_, ""),
                  [&used](const std::string&, const struct stat& info) { used += info.st_size; });
  if (!status.ok()) return status;
  if (used + more <= max_bytes_) return CheckDisk(folder, PathOf(root_, ""), file, more);
  return absl::ResourceExhaustedError(
      absl::StrCat("uploads take ", used, " bytes and file ", NameOf(file), " needs ", more,
                   " more; accepted: ", max_bytes_,
                   " in all (datasets.max_uploads_bytes); delete datasets that no job "
                   "needs, or raise the setting"));
}

absl::StatusOr<Upload> UploadStore::Start(const Caller& caller, const File& file) {
  if (absl::Status status = Check(file); !status.ok()) return status;
  const absl::StatusOr<FileHandle> folder = OpenFolder();
  if (!folder.ok()) return folder.status();
  const absl::MutexLock lock(&names_);
  absl::StatusOr<Upload> whole = FindWhole(*folder, file);
  if (whole.ok() && owners_->Has(whole->path())) {
    absl::Status added = owners_->Add(whole->path(), caller.name, file.size_bytes);
    if (!added.ok()) return added;
  }
  if (!absl::IsNotFound(whole.status())) return whole;
  const std::string name = PartNameOf(file);
  struct stat info = {};
  const bool is_new = fstatat(folder->fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0;
  absl::Status status = is_new ? CheckSpace(*folder, file, file.size_bytes) : absl::OkStatus();
  if (status.ok()) status = owners_->Add(DatasetOf(name), caller.name, file.size_bytes);
  if (!status.ok()) return status;
  if (!is_new) return Received(info.st_size);
  const FileHandle partial(
      openat(folder->fd(), name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (partial.fd() >= 0) return Received(0);
  status = FileFault(PathOf(root_, name), errno);
  owners_->Forget(DatasetOf(name));
  return status;
}

absl::StatusOr<Upload> UploadStore::Write(const Caller& caller, const File& file, int64_t offset,
                                          absl::string_view piece) {
  if (absl::Status status = Check(file); !status.ok()) return status;
  if (static_cast<int64_t>(piece.size()) > kMaxPieceBytes) {
    return PieceFault(static_cast<int64_t>(piece.size()),
                      absl::StrCat("at most ", kMaxPieceBytes, " bytes"));
  }
  const absl::StatusOr<FileHandle> folder = OpenFolder();
  if (!folder.ok()) return folder.status();
  const std::string name = PartNameOf(file);
  Turn turn(this, name);
  if (turn.hash() == nullptr) {
    return absl::AbortedError("another call is writing to this file; repeat the call");
  }
  const FileHandle partial(openat(folder->fd(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (partial.fd() < 0) {
    turn.SetOver();
    if (errno != ENOENT) return FileFault(PathOf(root_, name), errno);
    absl::StatusOr<Upload> whole = FindWhole(*folder, file);
    if (!absl::IsNotFound(whole.status())) return whole;
    return absl::NotFoundError(
        absl::StrCat("file ", NameOf(file), " of ", file.size_bytes,
                     " bytes was not announced, or was removed; call StartUpload"));
  }
  if (absl::Status own = owners_->CheckChange(caller, DatasetOf(name)); !own.ok()) return own;
  struct stat info = {};
  if (fstat(partial.fd(), &info) != 0) return FileFault(PathOf(root_, name), errno);
  int64_t received = info.st_size;
  if (offset == received && !piece.empty()) {
    const auto size = static_cast<int64_t>(piece.size());
    if (size > file.size_bytes - received) {
      return PieceFault(size, absl::StrCat("at most ", file.size_bytes - received,
                                           " bytes, what is left of size_bytes"));
    }
    absl::Status status = CheckSpace(*folder, file, file.size_bytes - received);
    if (status.ok()) status = WriteAt(partial, PathOf(root_, name), offset, piece);
    if (!status.ok()) return status;
    received += size;
  }
  absl::StatusOr<Upload> upload = Continue(*folder, file, partial, received, *turn.hash());
  if (!upload.ok() || !upload->path().empty()) turn.SetOver();
  return upload;
}

absl::StatusOr<Upload> UploadStore::Continue(const FileHandle& folder, const File& file,
                                             const FileHandle& partial, int64_t received,
                                             Hash& hash) const {
  const std::string path = PathOf(root_, PartNameOf(file));
  std::string bytes(kReadBytes, '\0');
  for (const int64_t until = std::min(received, hash.bytes + kHashBytes); hash.bytes < until;) {
    const auto wanted = static_cast<size_t>(
        std::min<int64_t>(until - hash.bytes, static_cast<int64_t>(bytes.size())));
    const ssize_t count = pread(partial.fd(), bytes.data(), wanted, hash.bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return FileFault(path, count < 0 ? errno : EIO);
    hash.stream.Add({bytes.data(), static_cast<size_t>(count)});
    hash.bytes += count;
  }
  if (hash.bytes < file.size_bytes) return Received(received);
  const std::string found = hash.stream.FinishHex();
  if (found != file.sha256) {
    unlinkat(folder.fd(), PartNameOf(file).c_str(), 0);
    owners_->Forget(DatasetOf(PartNameOf(file)));
    return absl::DataLossError(absl::StrCat("what was sent has SHA-256 ", found,
                                            "; accepted: sha256, ", file.sha256,
                                            "; it was removed: send the file again"));
  }
  if (absl::Status status = Publish(folder, file, partial); !status.ok()) return status;
  return Whole(file);
}

absl::Status UploadStore::RemoveIncomplete(const Caller& caller, const std::string& dataset) {
  const absl::StatusOr<FileHandle> folder = OpenFolder();
  if (!folder.ok()) return folder.status();
  std::vector<std::string> parts;
  absl::Status status =
      ForEachFile(*folder, PathOf(root_, ""), [&](const std::string& name, const struct stat&) {
        const std::string whole = name.substr(name.find('-', sizeof kPartPrefix - 1) + 1);
        if (AnnouncedBytes(name) && DatasetOf(whole) == dataset) parts.push_back(name);
      });
  if (!status.ok()) return status;
  if (parts.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no upload ", QuoteValue(dataset), "; StartUpload announces one"));
  }
  for (const std::string& part : parts) {
    Turn turn(this, part);
    if (turn.hash() == nullptr) {
      return absl::AbortedError(absl::StrCat("a call writes to ", QuoteValue(dataset),
                                             "; delete it when that call has ended"));
    }
    status = owners_->Delete(caller, DatasetOf(part), [&] {
      if (unlinkat(folder->fd(), part.c_str(), 0) != 0) {
        return FileFault(PathOf(root_, part), errno);
      }
      turn.SetOver();
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status UploadStore::Publish(const FileHandle& folder, const File& file,
                                  const FileHandle& partial) const {
  const std::string name = NameOf(file);
  const std::string part = PartNameOf(file);
  if (fsync(partial.fd()) != 0) return FileFault(PathOf(root_, name), errno);
  const absl::MutexLock lock(&names_);
  // Record the owners before the file appears, so that it never exists without owners.
  absl::Status status = owners_->Copy(DatasetOf(part), DatasetOf(name));
  if (!status.ok()) return status;
  if (renameat(folder.fd(), part.c_str(), folder.fd(), name.c_str()) != 0) {
    status = FileFault(PathOf(root_, name), errno);
    owners_->Forget(DatasetOf(name));
    return status;
  }
  owners_->Forget(DatasetOf(part));
  return fsync(folder.fd()) == 0 ? absl::OkStatus() : FileFault(PathOf(root_, ""), errno);
}

}  // namespace genesis
