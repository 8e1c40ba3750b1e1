#include "server/jobs/failure_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

constexpr size_t kNewest = 10;
constexpr size_t kFewest = 4;

}  // namespace

int FailureWatch::failures() const {
  return static_cast<int>(std::count(failed_.begin(), failed_.end(), true));
}

bool FailureWatch::Add(bool failed) {
  failed_.push_back(failed);
  if (failed_.size() > kNewest) failed_.pop_front();
  const bool bad = failed_.size() >= kFewest && 2 * failures() > static_cast<int>(failed_.size());
  if (!bad || fired_ || action_ == FailureWatchAction::kOff) return false;
  fired_ = true;
  reason_ = absl::StrCat(failures(), " of the last ", failed_.size(),
                         " jobs in reduced precision failed; accepted: at most half");
  return true;
}

}  // namespace genesis
