#include "server/workers/worker_admission.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/version.h"

namespace genesis {
namespace {

constexpr size_t kMaxHostName = 253;  // RFC 1035.
constexpr size_t kMaxId = 300;

bool IsName(const std::string& text, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

std::string Describe(const training::v1::SharedFolder& folder) {
  return absl::StrCat(folder.path(), folder.id().empty() ? " without its file .genesis-folder"
                                                         : absl::StrCat(" (", folder.id(), ")"));
}

}  // namespace

absl::Status CheckRemote(const training::v1::Hello& hello,
                         const std::optional<training::v1::SharedFolder>& wanted) {
  const training::v1::RemoteHost& host = hello.remote();
  if (!wanted.has_value()) {
    return absl::FailedPreconditionError(
        "this daemon takes no workers of other hosts; set workers.remote: true, and restart it");
  }
  if (!IsName(host.name(), kMaxHostName) || !IsName(hello.worker_id(), kMaxId)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host ", QuoteValue(host.name()), " with worker id ", QuoteValue(hello.worker_id()),
        "; accepted: letters, digits, '.', '_' and '-', at most ", kMaxHostName, " and ", kMaxId));
  }
  if (hello.version() != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker is of version ", QuoteValue(hello.version()), "; this daemon is ",
                     kVersion, ": install the same on both hosts"));
  }
  if (host.checkpoints().path() != wanted->path() || host.checkpoints().id() != wanted->id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the worker on ", host.name(), " sees the checkpoint folder ", Describe(host.checkpoints()),
        "; this daemon's is ", Describe(*wanted),
        ": mount the same file system there at the same path, and give it to the worker as "
        "--checkpoint-dir"));
  }
  return absl::OkStatus();
}

absl::Status ReservationIsOver(const std::string& reservation) {
  return absl::PermissionDeniedError(
      absl::StrCat("reservation ", QuoteValue(reservation),
                   " is over: its job has ended, is paused, or was submitted again"));
}

absl::Status NotAwaited(const training::v1::AttachRequest& request) {
  return absl::PermissionDeniedError(
      absl::StrCat("worker id \"", request.hello().worker_id(),
                   "\" is not one this daemon has started and awaits",
                   request.job_id().empty()
                       ? ""
                       : absl::StrCat(" with job ", request.job_id(), " claim ", request.claim())));
}

}  // namespace genesis
