#include "trainer/run/run_agreement.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {

void RunAgreement::Begin(int64_t step) const {
  const std::string own = absl::StrCat(step);
  const std::string first = ranks_.FromFirst(own);
  if (first == own) return;
  throw RunFailure{
      training::v1::FAILURE_CAUSE_CHECKPOINT,
      absl::StrCat("rank ", ranks_.rank(), " resumes at step ", own, " and rank 0 at step ", first,
                   "; all ranks need the same checkpoints, in a folder that all their "
                   "hosts see")};
}

void RunAgreement::Tell(bool time_is_up, double seconds, bool plateau, bool news) {
  if (ranks_.alone()) return;
  const std::optional<std::string> fp32 = control_.TakeFp32Request();
  if (fp32) fp32_reason_ = *fp32;
  ranks_.SetFlags({.stop = control_.stop_requested(),
                   .checkpoint = control_.TakeCheckpointRequest(),
                   .time_is_up = time_is_up,
                   .fp32 = fp32.has_value(),
                   .complete = !control_.EarlyEnd().empty(),
                   .plateau = plateau,
                   .news = news,
                   .seconds = seconds});
  agreed_checkpoint_ = true;
  agreed_fp32_ = true;
  agreed_plateau_ = true;
}

void RunAgreement::Exchange(bool time_is_up) {
  if (ranks_.alone()) return;
  Tell(time_is_up, /*seconds=*/0, /*plateau=*/false, /*news=*/true);
  const ControlFlags& own = ranks_.own_flags();
  const std::string flags = absl::StrCat(int{own.stop}, int{own.checkpoint}, int{own.time_is_up},
                                         int{own.fp32}, int{own.complete});
  const std::vector<std::string> all = ranks_.FromAll(flags);
  const auto any = [&all](size_t flag) {
    return std::any_of(all.begin(), all.end(),
                       [flag](const std::string& each) { return each[flag] == '1'; });
  };
  ranks_.Agree({.stop = any(0),
                .checkpoint = any(1),
                .time_is_up = any(2),
                .fp32 = any(3),
                .complete = any(4),
                .news = true,
                .seconds = ranks_.agreed().seconds});
}

std::optional<std::string> RunAgreement::TakeFp32Request() {
  if (ranks_.alone()) return control_.TakeFp32Request();
  if (!std::exchange(agreed_fp32_, false) || !ranks_.agreed().fp32) return std::nullopt;
  std::string reason = std::exchange(fp32_reason_, "");
  return reason.empty() ? "another rank was asked to" : reason;
}

std::string RunAgreement::EarlyEnd() const {
  std::string reason = control_.EarlyEnd();
  if (ranks_.alone()) return reason;
  if (!ranks_.agreed().complete) return "";
  return reason.empty() ? "another rank ends the job" : reason;
}

bool RunAgreement::TakePlateau(bool own) {
  if (ranks_.alone()) return own;
  return std::exchange(agreed_plateau_, false) && ranks_.agreed().plateau;
}

bool RunAgreement::TakeCheckpoint() {
  if (ranks_.alone()) return control_.TakeCheckpointRequest();
  return std::exchange(agreed_checkpoint_, false) && ranks_.agreed().checkpoint;
}

}  // namespace genesis
