#include "server/workers/start_backoff.h"

#include <algorithm>

namespace genesis {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Seconds(30);

}  // namespace

absl::Duration StartBackoff::NoteFailure(const std::string& problem, absl::Time now) {
  absl::Duration pause = kFirstPause;
  for (int i = 0; i < failures_ && pause < kLongestPause; ++i) pause *= 2;
  pause = std::min(pause, kLongestPause);
  ++failures_;
  next_try_ = now + pause;
  problem_ = problem;
  return pause;
}

void StartBackoff::NoteSuccess() {
  failures_ = 0;
  problem_.clear();
}

}  // namespace genesis
