#include "replay/capacity.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files/durable_file.h"
#include "base/text/field_error.h"
#include "replay/file.h"

namespace genesis {
namespace {

constexpr char kCapacityFile[] = "capacity";
constexpr uint64_t kMaxDigits = 20;

}  // namespace

absl::StatusOr<std::optional<int64_t>> ReadReplayCapacity(const std::string& folder) {
  const absl::StatusOr<ReplayFile> file =
      ReplayFile::OpenToRead(absl::StrCat(folder, "/", kCapacityFile));
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  const absl::StatusOr<uint64_t> size = file->Size();
  if (!size.ok()) return size.status();
  std::string text(std::min(*size, kMaxDigits), '\0');
  if (absl::Status status = file->Read(0, text.size(), text.data()); !status.ok()) return status;
  int64_t capacity = 0;
  if (*size > kMaxDigits || !absl::SimpleAtoi(text, &capacity) || capacity < 1) {
    return absl::DataLossError(
        absl::StrCat(file->path(), " is ", QuoteValue(text),
                     "; accepted: the number of transitions that the buffer keeps; write it"));
  }
  return capacity;
}

absl::Status WriteReplayCapacity(const std::string& folder, int64_t capacity) {
  return WriteDurably(absl::StrCat(folder, "/", kCapacityFile), absl::StrCat(capacity));
}

}  // namespace genesis
