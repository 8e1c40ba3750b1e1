#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "metrics/exposition.h"
#include "metrics/machine_statistics.h"
#include "metrics/running_jobs.h"

namespace genesis {

// Every metric of the daemon. Names, kinds, units, labels and help are one table, catalogue.h.
// Purpose: count what happened; owner: the daemon; thread-safe; no call fails or blocks on I/O.
// A value that was not measured exports no series.
class Metrics {
 public:
  // `deployment` is the constant label of every series: "stable" or "canary".
  Metrics(const std::string& deployment, const std::string& version);
  ~Metrics();

  // A job entered `to`; `from` is UNSPECIFIED for a new or recovered one.
  void JobMoved(training::v1::JobState from, training::v1::JobState to);
  // Jobs in a state when the daemon starts.
  void SetJobs(training::v1::JobState state, int64_t count);
  // A job reached a final state, `seconds` after a worker first began it (0: none ever did).
  void JobFinished(training::v1::JobState state, training::v1::FailureCause cause, double seconds);
  void Steps(const training::v1::Steps& steps, training::v1::PrecisionMode mode);
  // Replaces what is shown of the jobs that have a worker.
  void ShowRunning(const RunningStatistics& statistics);
  // A running job moved from one precision to another.
  void PrecisionChanged(const std::string& trigger);
  // A rule of the watchdog fired.
  void IncidentSeen(const std::string& rule);
  // A batch became durable in a replay buffer.
  void TransitionsAppended(int64_t count);
  void CheckpointWritten(double seconds, int64_t bytes);
  void CheckpointFailed();
  // The oldest moment since which work of a running job is in no checkpoint. By one thread.
  void SetUnprotectedSince(std::optional<double> unix_seconds);
  // `reason`: "crash", "hang", "device_error", "daemon_restart".
  void WorkerRestarted(const std::string& reason);
  void SetQueueDepth(int jobs);
  void SetWorkers(int busy, int warm, int slots);
  void SetQuarantined(const std::string& device, bool quarantined);
  // `volume`: "data", "checkpoints"; without figures it was not measured.
  void SetVolume(const std::string& volume, const std::optional<VolumeStatistics>& statistics);
  // Replaces what is shown of that device.
  void SetGpu(const GpuStatistics& statistics);
  // The gate, and how many configuration values could not be read.
  void SetGate(bool enabled, int config_errors);
  void SetReady(bool ready);
  // Settings, tokens or certificates were read again while the daemon ran.
  void ConfigReloaded(bool success);
  void SetCertificateEnd(double unix_seconds);
  // `reason`: "file_handles", "max_connections".
  void ConnectionRefused(const std::string& reason);
  void AuditLineLost();
  // Exceptions that were caught where calls come in.
  void ErrorsCaught(int64_t errors);
  void HistoryRowsLost(int64_t rows);
  // One finished RPC or HTTP request; `code` is the gRPC code's name or the HTTP status.
  void Request(const std::string& protocol, const std::string& method, const std::string& code);

  // All series.
  std::string Render(MetricsFormat format) const;
  std::string RenderText() const { return Render(MetricsFormat::kText); }
  // The families that Render renders, in its order.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  struct Series;  // series.h

  std::unique_ptr<Series> series_;
};

}  // namespace genesis
