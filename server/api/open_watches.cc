#include "server/api/open_watches.h"

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

absl::Status TooMany(int most, const std::string& of) {
  return absl::ResourceExhaustedError(absl::StrCat(most, " watches", of,
                                                   " are open; accepted: at most ", most,
                                                   "; end one, or ask with GetJob now and then"));
}

}  // namespace

absl::Status OpenWatches::Open(const std::shared_ptr<QuietStream>& watch, const std::string& caller,
                               const std::string& protocol) {
  const bool over_http = protocol == "http";
  absl::MutexLock lock(&mutex_);
  if (open_.size() >= kMax) return TooMany(kMax, "");
  if (over_http && over_http_ >= kMaxOverHttp) return TooMany(kMaxOverHttp, " over HTTP");
  int& of_caller = of_caller_[caller];
  if (of_caller >= kMaxOfCaller) {
    return TooMany(kMaxOfCaller, absl::StrCat(" of ", QuoteValue(caller)));
  }
  ++of_caller;
  over_http_ += over_http ? 1 : 0;
  open_[watch.get()] = {watch, caller, over_http};
  return absl::OkStatus();
}

void OpenWatches::Close(const QuietStream* watch) {
  absl::MutexLock lock(&mutex_);
  const auto found = open_.find(watch);
  const auto of_caller = of_caller_.find(found->second.caller);
  if (--of_caller->second == 0) of_caller_.erase(of_caller);
  over_http_ -= found->second.over_http ? 1 : 0;
  open_.erase(found);
}

void OpenWatches::CheckAdmissions() {
  std::vector<std::shared_ptr<QuietStream>> watches;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, entry] : open_) {
      if (auto watch = entry.watch.lock()) watches.push_back(std::move(watch));
    }
  }
  for (const auto& watch : watches) watch->CheckAdmission();
}

}  // namespace genesis
