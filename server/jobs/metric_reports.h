#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "genesis/training/v1/training_service.pb.h"
#include "server/auth/caller.h"
#include "server/jobs/job_context.h"

namespace genesis {

// The metrics that callers report about jobs. Each report is stored as an event of the job, from
// which the values of each step are read. A job shows each metric's value at its latest step, a
// checkpoint shows the values of its step, and a worker receives the values of evaluation.metric.
//
// Owner: JobManager. Threads: the writer's.
class MetricReports {
 public:
  explicit MetricReports(const JobContext& context) : context_(context) {}

  // Records a report. Returns the updated job, or the error.
  absl::StatusOr<training::v1::Job> Record(const training::v1::Job& job, const Caller& caller,
                                           const training::v1::ReportMetricsRequest& request);
  // Copies the values reported for the step of a new checkpoint into the checkpoint's record.
  void Fill(const training::v1::Job& job, training::v1::Checkpoint& checkpoint) const;
  // Removes the values of steps after `step`, to which the job went back. Call after the event of
  // that change was added.
  void ForgetAfter(training::v1::Job& job, int64_t step) const;
  // Sends the values of evaluation.metric to the job's worker, if the job follows one.
  void Send(const training::v1::Job& job) const;

 private:
  const JobContext& context_;
};

}  // namespace genesis
