#include "server/checkpoints/checkpoint_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/files/durable_file.h"
#include "base/running_time.h"
#include "base/text/field_error.h"
#include "server/checkpoints/import_names.h"
#include "server/workers/worker_process.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr int kShortThreads = 2;
// Reading a large file saturates a disk and a core, so run one task at a time.
constexpr int kLongThreads = 1;
constexpr size_t kLongestId = 127;
constexpr absl::Duration kLookAround = absl::Milliseconds(200);
constexpr size_t kMaxWords = 2000;

// Removes the shards next to "<id>.pt", named "<id>.pt.shard-...", and their manifests.
absl::Status RemoveShards(int folder, const std::string& name) {
  const std::string prefix = name + ".shard-";
  // Needs its own descriptor, because reading a folder moves the file position.
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = fd < 0 ? nullptr : fdopendir(fd);
  if (entries == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return FileFault(absl::StrCat("the folder of ", name), error);
  }
  const absl::Cleanup close_entries = [&] { closedir(entries); };
  std::vector<std::string> shards;
  while (const dirent* const entry = readdir(entries)) {
    if (absl::StartsWith(entry->d_name, prefix)) shards.emplace_back(entry->d_name);
  }
  for (const std::string& shard : shards) {
    if (unlinkat(folder, shard.c_str(), 0) != 0 && errno != ENOENT) return FileFault(shard, errno);
  }
  return absl::OkStatus();
}

std::string ReadWords(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream words;
  words << file.rdbuf();
  return std::string(absl::StripAsciiWhitespace(words.str().substr(0, kMaxWords)));
}

}  // namespace

std::string CheckpointPath(const std::string& dir, const std::string& id) {
  return absl::StrCat(dir, "/", id, ".pt");
}

std::string ManifestPathOf(const std::string& path) { return path + ".manifest.json"; }

std::string CheckpointIdFault(const std::string& id) {
  constexpr char kAccepted[] = "1 to 127 lower-case letters, digits and '-', the first no '-'";
  const bool letters = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
  if (id.empty() || id.size() > kLongestId || !letters || id[0] == '-') return kAccepted;
  // "<job>-step-<n>" is reserved for checkpoints of the job <job>.
  const size_t digits = id.find_last_not_of("0123456789") + 1;
  if (digits < id.size() &&
      (absl::EndsWith(id.substr(0, digits), "-step-") || id.substr(0, digits) == "step-")) {
    return absl::StrCat(kAccepted, ", and not ending in step-<number>, as jobs name theirs");
  }
  return "";
}

CheckpointFiles::CheckpointFiles(Options options)
    : options_(std::move(options)), threads_(kShortThreads), long_threads_(kLongThreads) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.dir, error)) {
    if (!absl::StartsWith(entry.path().filename().string(), kImportPrefix)) continue;
    spdlog::info("removing {}, left by an import that did not end", entry.path().string());
    std::error_code ignored;
    std::filesystem::remove(entry.path(), ignored);
  }
}

CheckpointFiles::~CheckpointFiles() { stopping_ = true; }

absl::Status CheckpointFiles::BeginDownload() {
  if (++downloads_ <= kMaxDownloads) return absl::OkStatus();
  --downloads_;
  return absl::ResourceExhaustedError(
      absl::StrCat(kMaxDownloads, " checkpoints are being downloaded; accepted: at most ",
                   kMaxDownloads, " at once; try again when one has ended"));
}

absl::Status CheckpointFiles::BeginImport(const std::string& id, int64_t size_bytes) {
  if (size_bytes > options_.max_import_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "size_bytes is ", size_bytes, "; accepted: at most ", options_.max_import_bytes,
        ", which is checkpoints.max_import_bytes; copy the file by other means, or raise that"));
  }
  absl::MutexLock lock(&mutex_);
  if (importing_.contains(id)) {
    return absl::AlreadyExistsError(
        absl::StrCat("checkpoint ", QuoteValue(id), " is being imported; choose another id"));
  }
  if (importing_.size() >= kMaxImports) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxImports, " imports are open; accepted: ", "at most ", kMaxImports,
                     " at once; try again when one has ended"));
  }
  importing_.insert(id);
  return absl::OkStatus();
}

void CheckpointFiles::EndImport(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  importing_.erase(id);
}

absl::StatusOr<FileHandle> CheckpointFiles::Open(const training::v1::Checkpoint& checkpoint) const {
  const absl::StatusOr<std::string> relative = RelativeTo(options_.dir, checkpoint.path());
  if (!relative.ok()) return relative.status();
  return OpenBeneath(options_.dir, *relative, O_RDONLY | O_NONBLOCK);
}

absl::StatusOr<std::string> CheckpointFiles::Link(const training::v1::Checkpoint& checkpoint,
                                                  const std::string& id) const {
  if (checkpoint.shard_count() > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint ", QuoteValue(checkpoint.id()), " is in ", checkpoint.shard_count(),
        " shards (checkpoint.sharded) and cannot have a second name; accepted: a checkpoint in one "
        "file; ask for one without a name, or copy ",
        checkpoint.path(), " with its shards"));
  }
  // Open refuses files outside the folder.
  if (absl::Status status = Open(checkpoint).status(); !status.ok()) return status;
  const std::string path = CheckpointPath(options_.dir, id);
  const std::string manifest = ManifestPathOf(checkpoint.path());
  // Link the manifest first, as for every checkpoint. A file without a manifest is verified alone.
  const bool has_manifest = link(manifest.c_str(), ManifestPathOf(path).c_str()) == 0;
  if (!has_manifest && errno != ENOENT) return FileFault(ManifestPathOf(path), errno);
  if (link(checkpoint.path().c_str(), path.c_str()) != 0) {
    const int error = errno;
    if (has_manifest) unlink(ManifestPathOf(path).c_str());
    return FileFault(path, error);
  }
  if (absl::Status status = SyncFolder(options_.dir); !status.ok()) return status;
  return path;
}

absl::Status CheckpointFiles::Remove(const training::v1::Checkpoint& checkpoint) const {
  const absl::StatusOr<std::string> relative = RelativeTo(options_.dir, checkpoint.path());
  if (!relative.ok()) return relative.status();
  const std::filesystem::path parts = *relative;
  const std::string folder = parts.has_parent_path() ? parts.parent_path().string() : ".";
  const absl::StatusOr<FileHandle> parent =
      OpenBeneath(options_.dir, folder, O_RDONLY | O_DIRECTORY);
  if (!parent.ok()) return parent.status();
  const std::string name = parts.filename().string();
  // Remove each file before its manifest, so that no file is ever left without its manifest.
  for (const std::string& each : {name, ManifestPathOf(name)}) {
    if (unlinkat(parent->fd(), each.c_str(), 0) != 0 && errno != ENOENT) {
      return FileFault(absl::StrCat(options_.dir, "/", folder, "/", each), errno);
    }
  }
  if (absl::Status status = RemoveShards(parent->fd(), name); !status.ok()) return status;
  return fsync(parent->fd()) == 0 ? absl::OkStatus() : FileFault(options_.dir, errno);
}

absl::Status CheckpointFiles::Verify(const std::string& path, const std::string& id) const {
  const std::string words_path = path + ".words";
  const absl::Cleanup remove_words = [&] { unlink(words_path.c_str()); };
  const absl::StatusOr<WorkerProcess> process =
      WorkerProcess::Spawn(options_.verifier, {"--verify", path}, {.log_path = words_path});
  if (!process.ok()) return process.status();
  const absl::Time deadline = RunningNow() + options_.verify_timeout;
  pollfd ended = {process->pidfd(), POLLIN, 0};
  bool in_time = true;
  while (poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(kLookAround))) == 0) {
    in_time = RunningNow() < deadline;
    if (in_time && !stopping_) continue;
    process->Signal(SIGKILL);
    break;
  }
  const ProcessExit exit = process->Reap();
  if (stopping_) return absl::UnavailableError("the daemon stops; import the file again later");
  if (!in_time) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file was not read to its end within ", absl::FormatDuration(options_.verify_timeout),
        "; accepted: a checkpoint that genesis-worker --verify accepts"));
  }
  if (exit.exit_code == 0) return absl::OkStatus();
  if (exit.signal != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the process that read the file was ended by signal ", exit.signal, " (",
        strsignal(exit.signal), "); accepted: a checkpoint that genesis-worker --verify accepts"));
  }
  // Replace the path by the ID, because the path is meaningless to the client.
  return absl::InvalidArgumentError(absl::StrReplaceAll(ReadWords(words_path), {{path, id}}));
}

}  // namespace genesis
