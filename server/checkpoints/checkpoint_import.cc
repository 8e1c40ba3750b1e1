#include "server/checkpoints/checkpoint_import.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/crc32c.h"
#include "base/files/durable_file.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "server/checkpoints/import_names.h"

namespace genesis {
absl::StatusOr<std::shared_ptr<CheckpointImport>> CheckpointImport::Begin(
    CheckpointFiles* files, const Announced& announced) {
  std::vector<FieldError> faults;
  std::string fault = CheckpointIdFault(announced.id);
  if (!fault.empty()) {
    faults.push_back({"checkpoint_id", QuoteValue(announced.id), std::move(fault)});
  }
  if (announced.size_bytes < 1) {
    faults.push_back({"size_bytes", absl::StrCat(announced.size_bytes),
                      "the size of the file in bytes, at least 1, in the first message"});
  }
  if (!faults.empty()) return ToStatus(faults);
  if (absl::Status status = files->BeginImport(announced.id, announced.size_bytes); !status.ok()) {
    return status;
  }
  return std::shared_ptr<CheckpointImport>(new CheckpointImport(files, announced));
}

CheckpointImport::CheckpointImport(CheckpointFiles* files, const Announced& announced)
    : files_(files),
      announced_(announced),
      path_(CheckpointPath(files->options().dir, announced.id)),
      temporary_(absl::StrCat(files->options().dir, "/", kImportPrefix, announced.id)) {}

CheckpointImport::~CheckpointImport() { End(); }

void CheckpointImport::End() {
  if (std::exchange(ended_, true)) return;
  if (file_.fd() >= 0) unlink(temporary_.c_str());
  files_->EndImport(announced_.id);
}

absl::Status CheckpointImport::Write(absl::string_view content) {
  if (file_.fd() < 0) {
    // The ID is reserved by this object, so an existing file was left by a failed import.
    file_ = FileHandle(
        open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file_.fd() < 0) return FileFault(temporary_, errno);
  }
  if (size_ + static_cast<int64_t>(content.size()) > announced_.size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("more than size_bytes, ", announced_.size_bytes,
                                                   ", was sent; accepted: just as much"));
  }
  for (size_t done = 0; done < content.size();) {
    const ssize_t count = write(file_.fd(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileFault(temporary_, errno);
    done += static_cast<size_t>(count);
  }
  size_ += static_cast<int64_t>(content.size());
  crc32c_ = Crc32c(crc32c_, content.data(), content.size());
  return absl::OkStatus();
}

absl::Status CheckpointImport::CheckWhole() const {
  if (size_ != announced_.size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(size_, " bytes were sent; accepted: size_bytes, ", announced_.size_bytes));
  }
  if (announced_.crc32c.has_value() && *announced_.crc32c != crc32c_) {
    return absl::InvalidArgumentError(
        absl::StrFormat("what was sent has CRC-32C %d; accepted: crc32c, %d; send it again",
                        crc32c_, *announced_.crc32c));
  }
  return absl::OkStatus();
}

absl::StatusOr<training::v1::Checkpoint> CheckpointImport::Publish() {
  if (absl::Status status = CheckWhole(); !status.ok()) return status;
  if (fsync(file_.fd()) != 0) return FileFault(temporary_, errno);
  if (absl::Status status = files_->Verify(temporary_, announced_.id); !status.ok()) return status;
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    return FileFault(path_, errno);
  }
  file_ = FileHandle();
  if (absl::Status status = SyncFolder(files_->options().dir); !status.ok()) return status;
  training::v1::Checkpoint checkpoint;
  checkpoint.set_id(announced_.id);
  checkpoint.set_path(path_);
  checkpoint.set_size_bytes(size_);
  checkpoint.set_crc32c(crc32c_);
  checkpoint.set_name(announced_.id);
  *checkpoint.mutable_create_time() = TimestampNow();
  return checkpoint;
}

void CheckpointImport::Withdraw() { unlink(path_.c_str()); }

}  // namespace genesis
