#pragma once

#include <c10/core/Device.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/job/job_spec.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "tests/temp_dir.h"
#include "tests/trainer/npz_writer.h"
#include "trainer/run/training_run.h"
#include "trainer/runtime/device.h"

namespace genesis {

inline training::v1::DeviceInfo TestCpu() {
  training::v1::DeviceInfo device;
  device.set_name("cpu");
  device.set_cpu_isa("avx2");
  return device;
}

// Returns the device in GENESIS_TEST_DEVICE (e.g. cuda:0), by default the CPU. Throws if it does
// not exist, because a GPU test on a CPU would be meaningless.
inline at::Device WantedDevice() {
  const char* const wanted = std::getenv("GENESIS_TEST_DEVICE");
  const std::string name = wanted != nullptr ? wanted : "cpu";
  std::string note;
  const std::string found = DetectDevice(name, &note).name();
  if (found != name) throw std::runtime_error(name + " is not there but " + found + "; " + note);
  return at::Device(found);
}

// Returns a tiny job with its spiral data in `folder`: 40 steps with a batch of 32 in FP32.
inline training::v1::StartJob TinyJob(const TempDir& folder) {
  folder.Write("spiral.npz", ZipBytes(SpiralRecords()));
  training::v1::StartJob start;
  start.set_job_id("tiny");
  start.set_claim(7);
  start.set_checkpoint_dir(folder.path() + "/checkpoints");
  start.mutable_precision()->set_mode(training::v1::PRECISION_MODE_FP32);
  start.mutable_precision()->set_device("cpu");
  training::v1::JobSpec& spec = *start.mutable_spec();
  spec.mutable_model()->mutable_world_model()->set_hidden_size(16);
  spec.mutable_model()->mutable_world_model()->set_latent_size(8);
  spec.mutable_dataset()->mutable_trajectories()->set_path(folder.path() + "/spiral.npz");
  spec.mutable_dataset()->mutable_trajectories()->set_holdout_fraction(0.25);
  spec.mutable_training()->set_max_steps(40);
  spec.mutable_training()->set_batch_size(32);
  spec.mutable_training()->set_gradient_accumulation_steps(1);
  spec.mutable_training()->set_max_grad_norm(1);
  spec.mutable_optimizer()->set_learning_rate(3e-3);
  spec.mutable_optimizer()->set_beta1(0.9);
  spec.mutable_optimizer()->set_beta2(0.999);
  spec.mutable_optimizer()->set_epsilon(1e-8);
  spec.mutable_optimizer()->set_weight_decay(0.01);
  spec.mutable_checkpoint()->set_keep_last(3);
  spec = WithDefaults(spec, LossScaleSettings());
  for (const auto mode :
       {training::v1::PRECISION_MODE_FP32, training::v1::PRECISION_MODE_MIXED_BF16,
        training::v1::PRECISION_MODE_MIXED_FP16}) {
    start.add_allowed_modes(mode);
  }
  start.set_patience_seconds(600);
  return start;
}

// Records all reports of a run, and can make a request at a given step.
class RecordingObserver : public RunObserver {
 public:
  void OnStarted(const training::v1::Started& event) override { started = event; }
  void OnStep(const StepRecord& record) override {
    steps.push_back(record);
    if (on_step) on_step(record.step);
  }
  void OnSteps(const training::v1::Steps& steps_event) override { reports.push_back(steps_event); }
  void OnCheckpoint(const training::v1::CheckpointWritten& event) override {
    checkpoints.push_back(event);
  }
  void OnPrecisionChanged(const training::v1::PrecisionChange& event) override {
    changes.push_back(event);
    checkpoints_before_change = checkpoints.size();
  }
  void OnIncident(const training::v1::Incident& event) override { incidents.push_back(event); }
  void OnEvaluated(const training::v1::Evaluation& event) override { evaluations.push_back(event); }
  void OnLog(const std::string& line) override { log += line + "\n"; }

  training::v1::Started started;
  std::vector<StepRecord> steps;
  std::vector<training::v1::Steps> reports;
  std::vector<training::v1::CheckpointWritten> checkpoints;
  std::vector<training::v1::PrecisionChange> changes;
  size_t checkpoints_before_change = 0;  // Reported before the newest change.
  std::vector<training::v1::Incident> incidents;
  std::vector<training::v1::Evaluation> evaluations;
  std::string log;
  std::function<void(int64_t)> on_step;
};

}  // namespace genesis
