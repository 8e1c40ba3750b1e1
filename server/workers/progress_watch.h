#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Decides that a worker hangs: by progress, not by liveness, for a worker in a deadlock is alive.
// Steps are progress in the section of steps; in the others every event is. The clock begins anew
// with each section, so that nothing stale is left to count against a healthy worker.
//
// Owner: a worker of WorkerTable.
class ProgressWatch {
 public:
  // The job was sent to the worker.
  void Begin(absl::Time now);
  // The worker came back. It has until its old deadline, or the least time that what it has to tell
  // takes to arrive: a worker that comes and goes without progress hangs all the same.
  void Resume(absl::Time now);
  void OnEvent(const training::v1::AttachRequest& event, absl::Time now);
  // While its stream is broken for the first time since its newest progress nothing can be known.
  void Pause() { watching_ = false; }
  // Nothing more is expected of it.
  void End() {
    watching_ = false;
    patience_ = absl::InfinitePast();
  }

  // When it counts as hung if no progress comes.
  absl::Time Deadline(const HangSettings& timeouts) const;
  // "no progress for 10m while making steps; accepted: hang.step_seconds"
  std::string Describe(const HangSettings& timeouts) const;

 private:
  bool watching_ = false;
  training::v1::Section section_ = training::v1::SECTION_SETUP;
  int64_t last_sequence_ = 0;
  absl::Time progress_;
  // Once for each progress: until then a worker that came back does not hang.
  absl::Time patience_ = absl::InfinitePast();
};

}  // namespace genesis
