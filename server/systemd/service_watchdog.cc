#include "server/systemd/service_watchdog.h"

#include <optional>
#include <utility>

namespace genesis {

void ServiceWatchdog::Start(const std::string& grpc_address, bool tls,
                            std::function<void(std::function<void()> alive)> ask_writer) {
  const std::optional<absl::Duration> watchdog = notifier_.watchdog();
  if (!watchdog.has_value()) return;
  // Tolerates two failed probes in a row before systemd restarts the daemon.
  SelfProbe::Options options;
  options.target = LocalTarget(grpc_address);
  options.tls = tls;
  options.period = *watchdog / 4;
  options.ask_writer = std::move(ask_writer);
  probe_ = std::make_unique<SelfProbe>(std::move(options));
  probe_->Start();
}

void ServiceWatchdog::Feed() {
  if (!probe_) return;
  const absl::Time success = probe_->last_success();
  if (success <= fed_) return;
  fed_ = success;
  notifier_.Alive();
}

void ServiceWatchdog::Stop() {
  if (probe_) probe_->Stop();
}

}  // namespace genesis
