// Metrics of training and precision.
#include "metrics/catalogue_rows.h"

namespace genesis {
namespace {

using enum MetricKind;

// Bucket bounds in seconds: jobs run from seconds to weeks.
const std::vector<double> kJobSeconds = {1,    5,     15,    60,    300,    900,
                                         3600, 14400, 43200, 86400, 259200, 604800};
// Bucket bounds in seconds: steps take from half a millisecond (small models) to minutes.
const std::vector<double> kStepSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                          0.25,   0.5,   1,      2.5,   5,    10,    30,   120};
}  // namespace

std::vector<MetricInfo> TrainingMetrics() {
  return {
      {"genesis_training_total",
       kCounter,
       "jobs",
       {},
       "Jobs that succeeded or failed. Cancelled jobs are not counted, so that "
       "genesis_training_success_total over this is the success rate.",
       {}},
      {"genesis_training_success_total", kCounter, "jobs", {}, "Jobs that succeeded.", {}},
      {"genesis_training_duration_seconds",
       kHistogram,
       "seconds",
       {},
       "Time from a job's first step of work on a worker to its final state.",
       kJobSeconds},
      {"genesis_training_samples_total",
       kCounter,
       "transitions",
       {},
       "Training examples; of a world model: transitions.",
       {}},
      {"genesis_transitions_appended_total",
       kCounter,
       "transitions",
       {},
       "Transitions that AppendTrajectories made durable in replay buffers; repeated batches are "
       "not counted.",
       {}},
      {"genesis_training_loss",
       kGauge,
       "1",
       {},
       "Training loss of one running job: one whose loss is not finite, else the one furthest from "
       "FP32, "
       "else the one that reported last. Where FP32's is known, smoothed as "
       "genesis_fp32_baseline_loss, "
       "which is then of the same job. Absent while no job runs.",
       {}},
      {"genesis_grad_norm",
       kGauge,
       "1",
       {},
       "Global L2 norm of the unscaled gradients before clipping, of the job of "
       "genesis_training_loss.",
       {}},
      {"genesis_optimizer_steps_total",
       kCounter,
       "steps",
       {"mode"},
       "Optimizer steps, skipped ones included, by the precision they were made in.",
       {}},
      {"genesis_last_step_timestamp_seconds",
       kGauge,
       "seconds",
       {},
       "When a worker last reported a step, since the Unix epoch; absent before the first.",
       {}},
      {"genesis_step_duration_seconds",
       kHistogram,
       "seconds",
       {"mode"},
       "Time of one optimizer step.",
       kStepSeconds},
  };
}

std::vector<MetricInfo> PrecisionMetrics() {
  return {
      {"genesis_reduced_precision_enabled",
       kGauge,
       "1",
       {},
       "1 when the gate lets jobs run in reduced precision, 0 when every job runs in FP32.",
       {}},
      {"genesis_effective_precision_info",
       kGauge,
       "1",
       {"mode", "device"},
       "Always 1; one series for each mode and device that running jobs run in.",
       {}},
      {"genesis_fp16_training_steps_total",
       kCounter,
       "steps",
       {},
       "Optimizer steps in reduced precision (FP16, BF16, mixed), skipped ones included.",
       {}},
      {"genesis_fp16_overflow_steps_total",
       kCounter,
       "steps",
       {},
       "Those of genesis_fp16_training_steps_total that were skipped because a gradient "
       "overflowed.",
       {}},
      {"genesis_skipped_steps_total",
       kCounter,
       "steps",
       {"reason"},
       "Optimizer steps whose update was skipped, in any precision.",
       {}},
      {"genesis_loss_scale",
       kGauge,
       "1",
       {},
       "Gradient scale reported last by a running job in an FP16 mode; the other modes have none.",
       {}},
      {"genesis_scale_growths_total",
       kCounter,
       "growths",
       {},
       "Times the gradient scale grew after a clean interval.",
       {}},
      {"genesis_scale_backoffs_total",
       kCounter,
       "reductions",
       {},
       "Times the gradient scale was reduced after an overflow.",
       {}},
      {"genesis_precision_changes_total",
       kCounter,
       "changes",
       {"trigger"},
       "Moves of running jobs from one precision to another, by what made them; all but promotion "
       "are rollbacks.",
       {}},
      {"genesis_incidents_total",
       kCounter,
       "incidents",
       {"rule"},
       "Times a rule of the precision watchdog fired, acting or not.",
       {}},
      {"genesis_fp32_baseline_loss",
       kGauge,
       "1",
       {},
       "Loss that the workload of the job of genesis_training_loss had in FP32 at the same step, "
       "smoothed over the watchdog's window; only where such a curve is known.",
       {}},
      {"genesis_loss_divergence_ratio",
       kGauge,
       "ratio",
       {},
       "How far the loss of the job of genesis_training_loss is from FP32's at the same steps: "
       "0.05 is 5 % above it. Of the running jobs whose FP32 loss is known, the one that is "
       "furthest away; absent while there is none.",
       {}},
      {"genesis_step_speed_to_fp32_ratio",
       kGauge,
       "ratio",
       {},
       "Speed of a running job in reduced precision as a multiple of FP32's on the same workload, "
       "by median step times; of several jobs the smallest. Absent where FP32's is not known.",
       {}},
      {"genesis_held_out_loss",
       kGauge,
       "1",
       {},
       "Loss of the newest evaluation on held-out data of a running job, in FP32.",
       {}},
      {"genesis_cuda_memory_allocated_bytes",
       kGauge,
       "bytes",
       {"mode"},
       "Bytes that the CUDA allocators of running jobs in this precision hold.",
       {}},
      {"genesis_cuda_memory_reserved_bytes",
       kGauge,
       "bytes",
       {"mode"},
       "Bytes that the CUDA allocators of running jobs in this precision have taken from their "
       "devices, "
       "in use or kept for later.",
       {}},
      {"genesis_cuda_memory_peak_bytes",
       kGauge,
       "bytes",
       {"mode"},
       "The most bytes that the CUDA allocators of running jobs held since each runs in this "
       "precision.",
       {}},
      {"genesis_cuda_memory_to_fp32_ratio",
       kGauge,
       "ratio",
       {},
       "Peak CUDA memory of a running job in reduced precision over the peak of the same workload "
       "in FP32; of several jobs the largest. Absent where FP32's is not known.",
       {}},
  };
}

}  // namespace genesis
