#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The pending requests of a run's caller, which the run polls between steps. Thread-safe.
class RunControl {
 public:
  void RequestCheckpoint() { checkpoint_.store(true, std::memory_order_release); }
  // A later stop without a checkpoint does not cancel an earlier one with it.
  void RequestStop(bool checkpoint) {
    if (checkpoint) checkpoint_.store(true, std::memory_order_release);
    stop_.store(true, std::memory_order_release);
  }
  bool TakeCheckpointRequest() { return checkpoint_.exchange(false, std::memory_order_acq_rel); }
  bool stop_requested() const { return stop_.load(std::memory_order_acquire); }

  // Requests FP32 from the next step on, for the given reason.
  void RequestFp32(const std::string& reason) {
    const absl::MutexLock lock(&mutex_);
    fp32_reason_ = reason;
    fp32_.store(true, std::memory_order_release);
  }
  // Returns the reason, once per request; nullopt without a request, and then takes no lock.
  std::optional<std::string> TakeFp32Request() {
    if (!fp32_.load(std::memory_order_acquire)) return std::nullopt;
    const absl::MutexLock lock(&mutex_);
    fp32_.store(false, std::memory_order_release);
    return fp32_reason_;
  }

  // Replaces what callers have reported about evaluation.metric.
  void SetMetricValues(const training::v1::MetricValues& values) {
    const absl::MutexLock lock(&mutex_);
    metric_values_ = values;
    ends_early_.store(!values.early_end().empty(), std::memory_order_release);
    rate_reductions_.store(values.rate_reductions(), std::memory_order_release);
  }
  // Number of plateaus that evaluation.metric has reached.
  int64_t rate_reductions() const { return rate_reductions_.load(std::memory_order_acquire); }
  // Returns the reported value for a step; nullopt if there is none.
  std::optional<double> MetricValue(int64_t step) const {
    const absl::MutexLock lock(&mutex_);
    for (int i = 0; i < metric_values_.steps_size() && i < metric_values_.values_size(); ++i) {
      if (metric_values_.steps(i) == step) return metric_values_.values(i);
    }
    return std::nullopt;
  }
  // Sets which weights to publish, initially none, and requests their newest versions. Ignores a
  // request whose number is below that of the current one, unless it is 0.
  void SetWantedWeights(const training::v1::PublishWeights& wanted) {
    const absl::MutexLock lock(&mutex_);
    if (wanted.request() != 0 && wanted.request() < wanted_weights_.request()) return;
    wanted_weights_ = wanted;
    weights_request_.fetch_add(1, std::memory_order_release);
  }
  // Number of requests that SetWantedWeights has accepted.
  int64_t weights_request() const { return weights_request_.load(std::memory_order_acquire); }
  training::v1::PublishWeights WantedWeights() const {
    const absl::MutexLock lock(&mutex_);
    return wanted_weights_;
  }

  // Returns why the job is complete before its last step, or "". Takes no lock in that case.
  std::string EarlyEnd() const {
    if (!ends_early_.load(std::memory_order_acquire)) return "";
    const absl::MutexLock lock(&mutex_);
    return metric_values_.early_end();
  }

 private:
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> fp32_{false};
  std::atomic<bool> ends_early_{false};
  std::atomic<int64_t> rate_reductions_{0};
  std::atomic<int64_t> weights_request_{0};
  mutable absl::Mutex mutex_;
  std::string fp32_reason_ ABSL_GUARDED_BY(mutex_);
  training::v1::MetricValues metric_values_ ABSL_GUARDED_BY(mutex_);
  training::v1::PublishWeights wanted_weights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
