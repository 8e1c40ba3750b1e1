#pragma once

#include <string>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/jobs/job_attempts.h"
#include "server/jobs/job_context.h"
#include "server/jobs/metric_reports.h"
#include "server/workers/worker_events.h"

namespace genesis {

// The handlers of worker reports. A report with an old claim is refused, so that two workers never
// write for one job. A repeated report is only acknowledged again.
//
// Owner: JobManager. Threads: any for the methods of WorkerEvents.
class WorkerReports final : public WorkerEvents {
 public:
  WorkerReports(const JobContext& context, JobAttempts* attempts, MetricReports* metric_reports)
      : context_(context), attempts_(*attempts), metric_reports_(*metric_reports) {}

  void OnCapacity() override;
  void OnWorkerEvent(const training::v1::AttachRequest& event, int rank) override;
  void OnWorkerBack(const std::string& job_id, int64_t claim) override;
  void OnWorkerHung(const std::string& job_id, int64_t claim, int rank,
                    const std::string& what) override;
  void OnWorkerGone(const WorkerExit& exit) override;

 private:
  using Job = training::v1::Job;

  void Report(const training::v1::AttachRequest& event);
  void Dispatch(const training::v1::AttachRequest& event);
  // Handles a report of a rank other than 0.
  void ReportOfRank(const training::v1::AttachRequest& event, int rank);
  void OnLogLine(const std::string& job_id, const std::string& line);
  void OnStarted(const Job& job, const training::v1::Started& started);
  void OnSteps(const Job& job, const training::v1::Steps& steps);
  void OnCheckpoint(const Job& job, const training::v1::CheckpointWritten& written);
  void OnPrecisionChanged(const Job& job, const training::v1::PrecisionChange& change);
  void OnIncident(const Job& job, const training::v1::Incident& incident);
  void OnEvaluated(const Job& job, const training::v1::Evaluation& evaluation);
  void OnBack(const Job& job);
  void NoteRank(const training::v1::Steps& steps, int rank, Job& job);
  void NoteHistory(const Job& job);

  const JobContext& context_;
  JobAttempts& attempts_;
  MetricReports& metric_reports_;
};

}  // namespace genesis
