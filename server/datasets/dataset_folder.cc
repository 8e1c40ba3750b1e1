#include "server/datasets/dataset_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/files/beneath.h"
#include "base/random_bytes.h"
#include "base/text/field_error.h"
#include "replay/segment_scan.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNames = 100000;
constexpr int kDeepest = 16;
constexpr char kReplay[] = "replay";

// Locks, temporary files and datasets that are being removed are hidden from users.
bool IsHidden(const fs::path& path) { return absl::StartsWith(path.filename().string(), "."); }

bool IsReplayBuffer(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (SegmentFirst(at->path().filename().string())) return true;
  }
  return false;
}

absl::Status NoSuchDataset(const std::string& name) {
  return absl::NotFoundError(
      absl::StrCat("there is no dataset ", QuoteValue(name), "; `genesisctl datasets` lists them"));
}

// Counts the transitions of the replay buffer in `folder` from its record headers; 0 if there is
// no buffer.
int64_t CountTransitions(const std::string& folder) {
  const absl::StatusOr<std::vector<uint64_t>> segments = ListSegments(folder);
  if (!segments.ok() || segments->empty()) return 0;
  const auto file =
      ReplayFile::OpenToRead(absl::StrCat(folder, "/", SegmentName(segments->back())));
  if (!file.ok()) return 0;
  const absl::StatusOr<SegmentHeader> header = ReadSegmentHeader(*file);
  const absl::StatusOr<uint64_t> size = file->Size();
  if (!header.ok() || !size.ok()) return 0;
  uint64_t next = header->first;
  uint64_t complete = next;  // Excludes a batch that is being written.
  for (uint64_t at = header->size; at + kRecordHeaderSize <= *size;) {
    char bytes[kRecordHeaderSize];
    if (!file->Read(at, sizeof(bytes), bytes).ok()) break;
    std::optional<RecordEntry> record = DecodeRecordHeader(bytes, header->layout);
    if (!record || record->first != next) break;
    record->offset = at;
    if (record->end() > *size) break;  // Being written, or truncated by a crash.
    next += record->count;
    if (!record->continues()) complete = next;
    at = record->end();
  }
  return static_cast<int64_t>(complete - segments->front());
}

}  // namespace

int64_t BytesIn(const std::string& folder) {
  std::error_code error;
  int64_t bytes = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const uintmax_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::string DatasetNameFault(const std::string& name) {
  constexpr char kAccepted[] =
      "the name of a dataset, a path below the dataset root without \"..\" and empty parts";
  if (absl::StrContains(name, '\0')) return kAccepted;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || absl::StartsWith(part, ".")) return kAccepted;
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> ListDatasetNames(const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator at(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const fs::file_status status = at->symlink_status(gone);
    const bool folder = fs::is_directory(status);
    const bool replay = folder && !IsHidden(at->path()) && IsReplayBuffer(at->path());
    if (folder && (replay || IsHidden(at->path()) || at.depth() >= kDeepest)) {
      at.disable_recursion_pending();
    }
    if (IsHidden(at->path()) || !(replay || fs::is_regular_file(status))) continue;
    if (names.size() >= kMaxNames) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there are more than ", kMaxNames, " files below the dataset root ", root,
                       "; accepted: fewer; move what is no dataset elsewhere"));
    }
    names.push_back(at->path().lexically_relative(root).string());
  }
  if (error) return FileFault(root, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<training::v1::DatasetInfo> DescribeDataset(const std::string& root,
                                                          const std::string& name) {
  const absl::StatusOr<FileHandle> handle = OpenBeneath(root, name, O_PATH);
  if (absl::IsNotFound(handle.status())) return NoSuchDataset(name);
  if (!handle.ok()) return handle.status();
  struct stat info = {};
  if (fstat(handle->fd(), &info) != 0) return FileFault(name, errno);
  const std::string path = absl::StrCat(root, "/", name);
  training::v1::DatasetInfo dataset;
  dataset.set_name(name);
  dataset.mutable_update_time()->set_seconds(info.st_mtim.tv_sec);
  dataset.mutable_update_time()->set_nanos(static_cast<int32_t>(info.st_mtim.tv_nsec));
  if (S_ISREG(info.st_mode)) {
    const std::string ending = fs::path(name).extension().string();
    dataset.set_kind(ending.empty() ? "file" : ending.substr(1));
    dataset.set_size_bytes(info.st_size);
  } else if (S_ISDIR(info.st_mode) && IsReplayBuffer(path)) {
    dataset.set_kind(kReplay);
    dataset.set_size_bytes(BytesIn(path));
    dataset.set_transitions(CountTransitions(path));
  } else {
    return NoSuchDataset(name);
  }
  return dataset;
}

absl::Status RemoveDataset(const std::string& root, const std::string& name) {
  if (absl::Status status = DescribeDataset(root, name).status(); !status.ok()) return status;
  const fs::path path = name;
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const absl::StatusOr<FileHandle> parent = OpenBeneath(root, folder, O_PATH | O_DIRECTORY);
  if (!parent.ok()) return parent.status();
  const std::string trash = absl::StrFormat("%s/.deleted-%016x", root, RandomNumber());
  if (renameat(parent->fd(), path.filename().c_str(), AT_FDCWD, trash.c_str()) != 0) {
    return FileFault(absl::StrCat(root, "/", name), errno);
  }
  std::error_code error;
  fs::remove_all(trash, error);  // Does not follow links.
  return error ? FileFault(trash, error.value()) : absl::OkStatus();
}

}  // namespace genesis
