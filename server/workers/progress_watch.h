#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Decides that a worker hangs: by progress, not by liveness, because a deadlocked worker is alive.
// In the section of steps only steps are progress; in the others every event is. Each section
// restarts the clock, so that no old time counts against a healthy worker.
//
// Owner: a worker of WorkerTable.
class ProgressWatch {
 public:
  // The job was sent to the worker.
  void Begin(absl::Time now);
  // The worker reattached. It has until its old deadline, or at least the time in which its queued
  // events arrive: a worker that leaves and returns without progress still counts as hung.
  void Resume(absl::Time now);
  void OnEvent(const training::v1::AttachRequest& event, absl::Time now);
  // The stream is broken for the first time since the newest progress; progress is unknown
  // meanwhile.
  void Pause() { watching_ = false; }
  // No more progress is expected.
  void End() {
    watching_ = false;
    patience_ = absl::InfinitePast();
  }

  // Returns when it counts as hung if there is no progress.
  absl::Time Deadline(const HangSettings& timeouts) const;
  // "no progress for 10m while making steps; accepted: hang.step_seconds"
  std::string Describe(const HangSettings& timeouts) const;

 private:
  bool watching_ = false;
  training::v1::Section section_ = training::v1::SECTION_SETUP;
  int64_t last_sequence_ = 0;
  absl::Time progress_;
  // Set once per progress: a reattached worker does not count as hung before it.
  absl::Time patience_ = absl::InfinitePast();
};

}  // namespace genesis
