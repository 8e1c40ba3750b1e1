#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A detector of workers that are alive but make no progress, for example in a deadlock. All events
// are progress, except log lines in SECTION_STEP. Each section restarts the clock, so that time
// spent in an earlier one does not count.
//
// Owner: a Worker of WorkerTable.
class ProgressWatch {
 public:
  // Called when the job has been sent to the worker.
  void Begin(absl::Time now);
  // Called when the worker has reattached. Its deadline stays, or is put off until queued events
  // can have arrived. Leaving and returning without progress still counts as a hang.
  void Resume(absl::Time now);
  void OnEvent(const training::v1::AttachRequest& event, absl::Time now);
  // Called when the stream breaks, because progress is unknown until the worker has reattached. The
  // deadline stays in force if the worker has already reattached once since its newest progress.
  void Pause() { watching_ = false; }
  // Called when no more progress is expected.
  void End() {
    watching_ = false;
    patience_ = absl::InfinitePast();
  }

  // Returns the time at which the worker counts as hung if it makes no progress.
  absl::Time Deadline(const HangSettings& timeouts) const;
  // For example: "no progress for 10m while making steps (hang.step_seconds)".
  std::string Describe(const HangSettings& timeouts) const;

 private:
  bool watching_ = false;
  training::v1::Section section_ = training::v1::SECTION_SETUP;
  int64_t last_sequence_ = 0;
  absl::Time progress_;
  // Time before which a reattached worker does not count as hung. Set once per progress.
  absl::Time patience_ = absl::InfinitePast();
};

}  // namespace genesis
