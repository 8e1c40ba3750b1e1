#include "server/checkpoints/checkpoint_download.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {

absl::StatusOr<std::shared_ptr<CheckpointDownload>> CheckpointDownload::Begin(
    CheckpointFiles* files, const training::v1::Checkpoint& checkpoint, int64_t offset) {
  if (checkpoint.shard_count() > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint ", QuoteValue(checkpoint.id()), " is in ", checkpoint.shard_count(),
        " shards (checkpoint.sharded), and one file is sent; accepted: a checkpoint in one file; "
        "copy ",
        checkpoint.path(), " and the files *.shard-* beside it, or `genesis-worker --export ",
        checkpoint.path(), "` there for its weights"));
  }
  if (offset < 0 || offset > checkpoint.size_bytes()) {
    return absl::OutOfRangeError(absl::StrCat("offset is ", offset, "; accepted: 0 to ",
                                              checkpoint.size_bytes(), ", the file's size"));
  }
  if (absl::Status status = files->BeginDownload(); !status.ok()) return status;
  return std::shared_ptr<CheckpointDownload>(new CheckpointDownload(files, checkpoint, offset));
}

absl::Status CheckpointDownload::Open() {
  absl::StatusOr<FileHandle> file = files_->Open(checkpoint_);
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat("checkpoint ", QuoteValue(checkpoint_.id()),
                                            " has no file any more: ", file.status().message(),
                                            "; delete its record, or restore the file"));
  }
  if (!file.ok()) return file.status();
  struct stat info = {};
  if (fstat(file->fd(), &info) != 0) return FileFault(checkpoint_.path(), errno);
  if (!S_ISREG(info.st_mode) || info.st_size != checkpoint_.size_bytes()) {
    return absl::DataLossError(absl::StrCat(
        "the file of checkpoint ", QuoteValue(checkpoint_.id()), " has ", info.st_size,
        " bytes; its record says ", checkpoint_.size_bytes(), ": somebody changed it; restore it"));
  }
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointDownload::Read(int64_t most) {
  std::string piece(static_cast<size_t>(std::min(most, end_ - at_)), '\0');
  for (size_t done = 0; done < piece.size();) {
    const ssize_t count = pread(file_.fd(), piece.data() + done, piece.size() - done,
                                at_ + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileFault(checkpoint_.path(), errno);
    if (count == 0) {
      return absl::DataLossError(absl::StrCat("the file of checkpoint ",
                                              QuoteValue(checkpoint_.id()),
                                              " became shorter while it was read; restore it"));
    }
    done += static_cast<size_t>(count);
  }
  at_ += static_cast<int64_t>(piece.size());
  return piece;
}

}  // namespace genesis
