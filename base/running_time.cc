#include "base/running_time.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace genesis {
namespace {

constexpr absl::Duration kBeatPause = absl::Milliseconds(200);

// The running time of the whole process: all waits in it share its pauses.
struct ProcessTime {
  absl::Mutex mutex;
  RunningTime time ABSL_GUARDED_BY(mutex);
  int heartbeats ABSL_GUARDED_BY(mutex) = 0;
};

ProcessTime& OfThisProcess() {
  static auto& time = *new ProcessTime;
  return time;
}

}  // namespace

absl::Duration RunningTime::Beat(absl::Time steady) {
  const absl::Duration lost = std::max(steady - last_beat_ - kMaxGap, absl::ZeroDuration());
  lost_ += lost;
  last_beat_ = steady;
  return lost;
}

absl::Time RunningTime::Read(absl::Time steady) const {
  return std::min(steady, last_beat_ + kMaxGap) - lost_;
}

void RunningTime::End(absl::Time steady) {
  Beat(steady);
  last_beat_ = absl::InfiniteFuture();
}

absl::Time RunningNow() {
  ProcessTime& process = OfThisProcess();
  absl::MutexLock lock(&process.mutex);
  return process.time.Read(SteadyNow());
}

Heartbeat::Heartbeat(std::function<void(absl::Duration)> on_pause)
    : on_pause_(std::move(on_pause)) {
  ProcessTime& process = OfThisProcess();
  absl::MutexLock lock(&process.mutex);
  ++process.heartbeats;
  process.time.Beat(SteadyNow());
  thread_ = std::thread([this] { Loop(); });
}

Heartbeat::~Heartbeat() {
  stopping_.Notify();
  thread_.join();
  ProcessTime& process = OfThisProcess();
  absl::MutexLock lock(&process.mutex);
  if (--process.heartbeats == 0) process.time.End(SteadyNow());
}

void Heartbeat::Loop() {
  while (!stopping_.WaitFor(kBeatPause)) {
    ProcessTime& process = OfThisProcess();
    absl::Duration lost;
    {
      absl::MutexLock lock(&process.mutex);
      lost = process.time.Beat(SteadyNow());
    }
    if (lost > absl::ZeroDuration()) on_pause_(lost);
  }
}

}  // namespace genesis
