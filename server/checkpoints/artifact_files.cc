#include "server/checkpoints/artifact_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/files/beneath.h"
#include "base/files/crc32c.h"
#include "base/files/errno_status.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"

namespace genesis {
namespace {

using training::v1::Artifact;
using training::v1::ReadArtifactRequest;
using training::v1::ReadArtifactResponse;

constexpr size_t kMaxListed = 1000;

// Accepts "-trace-step-12.json" or "-step-000012.safetensors" after the job ID. Only digits are
// allowed, because the ID of another job may begin with this one's.
bool IsArtifactOf(const std::string& job_id, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, job_id)) return false;
  const bool fits =
      absl::ConsumePrefix(&name, "-trace-step-")
          ? absl::ConsumeSuffix(&name, ".json")
          : absl::ConsumePrefix(&name, "-step-") && absl::ConsumeSuffix(&name, ".safetensors");
  return fits && !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

absl::Status NoSuchArtifact(const ReadArtifactRequest& request) {
  return absl::NotFoundError(absl::StrCat("job ", QuoteValue(request.job_id()), " has no artifact ",
                                          QuoteValue(request.name()),
                                          "; ListArtifacts names those that it has"));
}

absl::Status BehindTheEnd(const ReadArtifactRequest& request, int64_t size) {
  return absl::OutOfRangeError(absl::StrCat("offset is ", request.offset(), "; accepted: 0 to ",
                                            size, ", the size of ", QuoteValue(request.name())));
}

int64_t LengthOf(const ReadArtifactRequest& request, int64_t size, int64_t most) {
  const int64_t wanted = request.limit() > 0 ? std::min(request.limit(), most) : most;
  return std::min(wanted, size - request.offset());
}

ReadArtifactResponse Piece(std::string content, int64_t size) {
  ReadArtifactResponse response;
  response.set_piece_crc32c(Crc32c(0, content.data(), content.size()));
  response.set_piece(std::move(content));
  response.set_size_bytes(size);
  return response;
}

}  // namespace

std::vector<Artifact> ListArtifactFiles(const std::string& dir, const std::string& job_id) {
  std::vector<Artifact> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(dir.c_str()), &closedir);
  if (!folder) return found;
  for (const dirent* entry = readdir(folder.get()); entry != nullptr;
       entry = readdir(folder.get())) {
    struct stat info {};
    if (!IsArtifactOf(job_id, entry->d_name) ||
        fstatat(dirfd(folder.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    Artifact& artifact = found.emplace_back();
    artifact.set_name(entry->d_name);
    artifact.set_size_bytes(info.st_size);
    *artifact.mutable_update_time() = ToTimestamp(absl::TimeFromTimespec(info.st_mtim));
    if (found.size() == kMaxListed) break;
  }
  std::sort(found.begin(), found.end(),
            [](const Artifact& a, const Artifact& b) { return a.name() < b.name(); });
  return found;
}

absl::StatusOr<ReadArtifactResponse> ReadArtifactFile(const std::string& dir,
                                                      const ReadArtifactRequest& request,
                                                      int64_t most) {
  if (!IsArtifactOf(request.job_id(), request.name())) return NoSuchArtifact(request);
  const absl::StatusOr<FileHandle> file =
      OpenBeneath(dir, request.name(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (absl::IsNotFound(file.status())) return NoSuchArtifact(request);
  if (!file.ok()) return file.status();
  struct stat info {};
  if (fstat(file->fd(), &info) != 0 || !S_ISREG(info.st_mode)) return NoSuchArtifact(request);
  if (request.offset() > info.st_size) return BehindTheEnd(request, info.st_size);
  std::string content(static_cast<size_t>(LengthOf(request, info.st_size, most)), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = pread(file->fd(), content.data() + done, content.size() - done,
                              request.offset() + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(absl::StrCat(request.name(), ": reading failed"), errno);
    if (got == 0) break;  // The file was truncated in the meantime.
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return Piece(std::move(content), info.st_size);
}

absl::StatusOr<ReadArtifactResponse> ReadArtifactText(const std::string& text,
                                                      const ReadArtifactRequest& request,
                                                      int64_t most) {
  const auto size = static_cast<int64_t>(text.size());
  if (request.offset() > size) return BehindTheEnd(request, size);
  return Piece(text.substr(static_cast<size_t>(request.offset()),
                           static_cast<size_t>(LengthOf(request, size, most))),
               size);
}

}  // namespace genesis
