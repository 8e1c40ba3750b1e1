#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/job_curves.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis::cli {

// Returns "walk-1  RUNNING  [#####.....]  512/1000  51.2%  loss 0.0123 ▆▃▂▁  scale 65536
// 9870 samples/s  1.5 GiB  ETA 0:12" in at most `width` columns: the bar is shortened first, then
// dropped. Before the first step, returns the state with the place in the queue or the reason of
// the state; while the job waits for data, the state with what it waits for.
std::string RenderProgress(const training::v1::Job& job, int width, const JobSketch& sketch = {});

// Returns the remaining time, from the average rate; "" while the rate is
// unknown and after the last step.
std::string RenderEta(const training::v1::Job& job);

// Returns how a job ended: state and reason, held-out errors, checkpoint; for a failed job also
// cause, message and log tail.
std::string RenderEnd(const training::v1::Job& job);

// The progress of a watched job. On a terminal, one line is redrawn in place. Otherwise a line is
// printed at each change of state, and at most one a second in between. For one thread.
class ProgressLine {
 public:
  ProgressLine(std::ostream& out, bool terminal, int width, std::function<absl::Time()> now);

  // `sketch` is shown on a terminal.
  void Update(const training::v1::Job& job, const JobSketch& sketch = {});
  // Prints warnings above the line, unless the same warnings have just been printed.
  void Warn(const std::vector<std::string>& warnings);
  // Ends the redrawn line, so that other text can follow.
  void Close();

 private:
  std::ostream& out_;
  const bool terminal_;
  const int width_;
  const std::function<absl::Time()> now_;
  bool open_ = false;  // The terminal has an unfinished line.
  training::v1::JobState last_state_ = training::v1::JOB_STATE_UNSPECIFIED;
  std::vector<std::string> warned_;
  absl::Time last_print_ = absl::InfinitePast();
};

}  // namespace genesis::cli
