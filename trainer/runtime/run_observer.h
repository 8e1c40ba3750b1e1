#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/files/memory_file.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// The record of one finished step, for its curves and --telemetry.
struct StepRecord {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;      // Unscaled, before clipping.
  double loss_scale = 1;     // Loss scale used by the step.
  double learning_rate = 0;  // Learning rate used by the step.
  bool skipped = false;
  training::v1::PrecisionMode mode = training::v1::PRECISION_MODE_FP32;
  int64_t samples = 0;          // Total since the job began.
  double step_seconds = 0;      // Duration of the step.
  double training_seconds = 0;  // Training time over all attempts.
  // Bytes that the CUDA allocator held at the last report; unset on a CPU.
  std::optional<int64_t> memory_bytes = std::nullopt;
  std::optional<double> divergence = std::nullopt;  // Watchdog::divergence.
  std::optional<double> speed = std::nullopt;       // Watchdog::speed.
};

// A receiver of the events of a run. Called on the run's threads; must not block.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void OnStarted(const training::v1::Started& started) = 0;
  virtual void OnStep(const StepRecord&) {}
  virtual void OnSteps(const training::v1::Steps& steps) = 0;
  virtual void OnCheckpoint(const training::v1::CheckpointWritten& written) = 0;
  virtual void OnPrecisionChanged(const training::v1::PrecisionChange&) {}
  virtual void OnIncident(const training::v1::Incident&) {}
  virtual void OnEvaluated(const training::v1::Evaluation&) {}
  // Called when the run enters a section other than steps, or returns to steps.
  virtual void OnSection(training::v1::Section) {}
  // Called every second while the run waits for data, and with "" when the run continues.
  virtual void OnWaiting(const std::string& /*reason*/) {}
  virtual void OnLog(const std::string& line) = 0;
  // Passes on a version of the weights. Unlike the other methods, it is called on a separate thread
  // and may block.
  virtual absl::Status OnWeights(const training::v1::PublishedWeights&, const MemoryFile&) {
    return absl::OkStatus();
  }
};

}  // namespace genesis
