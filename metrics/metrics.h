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

// The metrics of the daemon. MetricCatalogue() has their names, kinds, units, labels and help.
// Owner: the daemon. Thread-safe. No call fails or blocks on I/O. A value that was not measured
// exports no series.
class Metrics {
 public:
  // `deployment` is a constant label of every series: "stable" or "canary".
  Metrics(const std::string& deployment, const std::string& version);
  ~Metrics();

  // Counts a transition of a job; `from` is UNSPECIFIED for a new job, `to` for a deleted one.
  void JobMoved(training::v1::JobState from, training::v1::JobState to);
  // Sets the number of jobs in a state when the daemon starts.
  void SetJobs(training::v1::JobState state, int64_t count);
  // Counts a job that has ended, `seconds` after its first start on a worker (0 if never started).
  void JobFinished(training::v1::JobState state, training::v1::FailureCause cause, double seconds);
  void Steps(const training::v1::Steps& steps, training::v1::PrecisionMode mode);
  // Replaces the gauges of all running jobs.
  void ShowRunning(const RunningStatistics& statistics);
  // Counts a change of precision of a running job.
  void PrecisionChanged(const std::string& trigger);
  // Counts an incident: a rule of the watchdog that fired.
  void IncidentSeen(const std::string& rule);
  // Counts transitions that became durable in a replay buffer.
  void TransitionsAppended(int64_t count);
  void CheckpointWritten(double seconds, int64_t bytes);
  void CheckpointFailed();
  // Sets the oldest time since which a running job has unsaved work. Called by one thread.
  void SetUnprotectedSince(std::optional<double> unix_seconds);
  // Counts a restart. `reason`: "crash", "hang", "device_error", "daemon_restart".
  void WorkerRestarted(const std::string& reason);
  void SetQueueDepth(int jobs);
  void SetWorkers(int busy, int warm, int slots);
  void SetQuarantined(const std::string& device, bool quarantined);
  // `volume`: "data" or "checkpoints". `nullopt` if the volume could not be measured.
  void SetVolume(const std::string& volume, const std::optional<VolumeStatistics>& statistics);
  // Replaces the metrics of the device.
  void SetGpu(const GpuStatistics& statistics);
  // Sets the state of the gate and the number of configuration values that could not be read.
  void SetGate(bool enabled, int config_errors);
  void SetReady(bool ready);
  // Counts a reload of settings, tokens or certificates.
  void ConfigReloaded(bool success);
  void SetCertificateEnd(double unix_seconds);
  // Counts a refused connection. `reason`: "file_handles", "max_connections", "resets".
  void ConnectionRefused(const std::string& reason);
  void AuditLineLost();
  // Counts exceptions that were caught at entry points of calls.
  void ErrorsCaught(int64_t errors);
  void HistoryRowsLost(int64_t rows);
  // Counts items that were not exported. `signal`: "traces" or "metrics".
  void OtlpDropped(const std::string& signal, int64_t items);
  // Counts an attempt to deliver an event. `outcome`: "delivered", "failed", "dead".
  void WebhookAttempted(const std::string& endpoint, const std::string& outcome);
  // Exports the counters of an endpoint, starting at 0.
  void AddWebhookEndpoint(const std::string& endpoint);
  // Sets the age of the oldest event that waits for an endpoint.
  void SetOldestWebhook(double seconds);
  // Counts a finished RPC or HTTP request. `code` is the gRPC code's name or the HTTP status.
  void Request(const std::string& protocol, const std::string& method, const std::string& code);

  // Returns the page of all series.
  std::string Render(MetricsFormat format) const;
  std::string RenderText() const { return Render(MetricsFormat::kText); }
  // Returns the families in the order of Render.
  std::vector<prometheus::MetricFamily> Collect() const;

 private:
  struct Series;  // series.h

  std::unique_ptr<Series> series_;
};

}  // namespace genesis
