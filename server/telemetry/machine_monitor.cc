#include "server/telemetry/machine_monitor.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/steady_time.h"
#include "server/telemetry/nvml.h"
#include "server/telemetry/visible_devices.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr absl::Duration kStopPatience = absl::Seconds(2);
// Pause before NVML is loaded again: a missing driver may be installed later.
constexpr absl::Duration kLoadPause = absl::Minutes(1);
constexpr int kStalePeriods = 6;

absl::StatusOr<VolumeStatistics> ReadVolume(const std::string& folder) {
  struct statvfs stat {};
  if (statvfs(folder.c_str(), &stat) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot measure the file system of ", folder));
  }
  const auto block = static_cast<int64_t>(stat.f_frsize);
  const auto kept = static_cast<int64_t>(stat.f_bfree - stat.f_bavail);
  return VolumeStatistics{.free = static_cast<int64_t>(stat.f_bavail) * block,
                          .size = (static_cast<int64_t>(stat.f_blocks) - kept) * block};
}

bool HasStatistics(const GpuStatistics& gpu) {
  return gpu.memory_total_bytes || gpu.utilization_ratio || gpu.power_watts ||
         gpu.temperature_celsius;
}

struct Sample {
  std::map<std::string, std::optional<VolumeStatistics>> volumes;
  std::vector<GpuStatistics> gpus;
};

}  // namespace

// The state of the monitor's thread.
class MachineMonitor::Sampler {
 public:
  Sampler(Options options, Metrics* metrics) : options_(std::move(options)), metrics_(metrics) {}

  void Loop() {
    while (true) {
      const Sample sample = Measure();
      absl::MutexLock lock(&mutex_);
      if (!stopping_) Show(sample);
      const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
      if (changed_.WaitUntil(mutex_, SteadyNow() + options_.period, stopping)) break;
    }
    absl::MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }

  // Returns true if the thread has ended in time.
  bool Stop() {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; };
    return changed_.WaitUntil(mutex_, SteadyNow() + kStopPatience, ended);
  }

  void HideStale() {
    absl::MutexLock lock(&mutex_);
    if (SteadyNow() - shown_ < kStalePeriods * options_.period || shown_ == absl::InfinitePast()) {
      return;
    }
    spdlog::error("measuring the machine takes more than {}; its values are no longer shown",
                  absl::FormatDuration(kStalePeriods * options_.period));
    Sample none;
    for (const auto& [name, folder] : options_.volumes) none.volumes[name] = std::nullopt;
    for (const std::string& device : options_.devices) none.gpus.push_back({.device = device});
    Show(none);
    shown_ = absl::InfinitePast();
  }

 private:
  Sample Measure() {
    Sample sample;
    for (const auto& [name, folder] : options_.volumes) {
      const absl::StatusOr<VolumeStatistics> statistics = ReadVolume(folder);
      TellOnce(name, statistics.status());
      sample.volumes[name] = statistics.ok() ? std::optional(*statistics) : std::nullopt;
    }
    LoadNvml();
    bool answers = false;
    for (const std::string& device : options_.devices) {
      const auto found = match_.found.find(device);
      GpuStatistics statistics{.device = device};
      if (nvml_ != nullptr && found != match_.found.end()) {
        statistics = nvml_->Read(found->second, device);
      }
      answers = answers || HasStatistics(statistics);
      sample.gpus.push_back(std::move(statistics));
    }
    // After a driver update, every call fails until NVML is loaded again.
    if (!answers) nvml_ = nullptr;
    return sample;
  }

  void LoadNvml() {
    const bool wanted =
        std::any_of(options_.devices.begin(), options_.devices.end(),
                    [](const std::string& name) { return absl::StartsWith(name, "cuda:"); });
    if (!wanted || nvml_ != nullptr || SteadyNow() < next_load_) return;
    next_load_ = SteadyNow() + kLoadPause;
    absl::StatusOr<std::unique_ptr<Nvml>> loaded = Nvml::Load(options_.nvml);
    TellOnce("nvml", loaded.status());
    if (!loaded.ok()) return;
    nvml_ = *std::move(loaded);
    match_ = MatchDevices(options_.devices, nvml_->devices(), options_.environment);
    TellOnce("devices",
             match_.problem.empty() ? absl::OkStatus() : absl::NotFoundError(match_.problem));
  }

  void TellOnce(const std::string& what, const absl::Status& status) {
    std::string& told = told_[what];
    const std::string message(status.message());
    if (!status.ok() && message != told) spdlog::warn("not measured: {}", message);
    told = message;
  }

  void Show(const Sample& sample) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [name, statistics] : sample.volumes) metrics_->SetVolume(name, statistics);
    for (const GpuStatistics& gpu : sample.gpus) metrics_->SetGpu(gpu);
    shown_ = SteadyNow();
  }

  const Options options_;
  // Used by the thread only.
  std::unique_ptr<Nvml> nvml_;
  DeviceMatch match_;
  absl::Time next_load_ = absl::InfinitePast();
  std::map<std::string, std::string> told_;

  absl::Mutex mutex_;
  Metrics* const metrics_ ABSL_PT_GUARDED_BY(mutex_);  // Not used after Stop.
  SteadyCondition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time shown_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

MachineMonitor::MachineMonitor(Options options, Metrics* metrics)
    : sampler_(std::make_shared<Sampler>(std::move(options), metrics)) {}

void MachineMonitor::Start() {
  thread_ = std::thread([sampler = sampler_] { sampler->Loop(); });
}

void MachineMonitor::Stop() {
  if (!thread_.joinable()) return;
  if (sampler_->Stop()) {
    thread_.join();
  } else {
    spdlog::warn("a measurement of the machine hangs; the daemon does not wait for it");
    thread_.detach();
  }
}

void MachineMonitor::HideStale() { sampler_->HideStale(); }

}  // namespace genesis
