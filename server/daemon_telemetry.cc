// The part of Daemon for metrics and their history.
#include "server/daemon.h"

namespace genesis {

void Daemon::CreateTelemetry(const std::vector<std::string>& devices) {
  MachineMonitor::Options machine;
  machine.volumes = {{"data", settings_.data_dir}, {"checkpoints", settings_.checkpoints.dir}};
  machine.devices = devices;
  monitor_ = std::make_unique<MachineMonitor>(std::move(machine), &metrics_);
  history_ = std::make_unique<HistoryStore>(settings_.data_dir + "/metrics.db");
  HistoryRecorder::Options history;
  history.interval = absl::Seconds(settings_.history.interval_seconds);
  history.retention = absl::Hours(24) * settings_.history.retention_days;
  recorder_ = std::make_unique<HistoryRecorder>(history, history_.get(), &metrics_,
                                                [this] { return jobs_->queries().HistoryRows(); });
}

}  // namespace genesis
