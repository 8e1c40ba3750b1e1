#pragma once

#include <string>

#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/distributed/rank_place.h"

namespace genesis {

// --resume latest: resumes from the newest usable checkpoint of the job, or starts from the
// beginning if there is none.
inline constexpr char kResumeLatest[] = "latest";

// The options of `genesis-worker --spec`.
struct LocalRunOptions {
  std::string spec;                            // Path of the job file.
  std::string checkpoint_dir = "checkpoints";  // Created if it does not exist.
  std::string resume;                          // A checkpoint, kResumeLatest, or "".
  std::string telemetry;                       // File for one line of JSON per step, or "".
  std::string compiled_dir;                    // Folder of compiled steps, or "".
  std::string datasets_root;                   // Additional folder for data, or "".
  bool emulate_fp16 = false;                   // Run FP16 modes on a CPU, slowly.
  bool cuda_graphs = false;                    // Capture steps on CUDA.
};

// Runs a job file without a daemon, and reports the run on the standard output of rank 0. Returns
// the exit code of the process: kOk, kUsage for an unusable job file, kJobFailed, or kFailure if a
// signal stopped it. Signals must be blocked (see termination.h).
int RunLocal(const LocalRunOptions& options, const RankPlace& place,
             const training::v1::DeviceInfo& device);

// Prints as JSON the step of the job in each mode that the job could reach on this device with
// reduced precision allowed: {"steps": [{"mode", "key", "text"}]}, with key and text of
// StepDescription, or "refused", the reason, instead of both. Trains nothing.
int RunDescribeStep(const LocalRunOptions& options, const training::v1::DeviceInfo& device);

}  // namespace genesis
