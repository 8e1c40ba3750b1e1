#include "trainer/run/step_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

}  // namespace

StepTrace::StepTrace(const training::v1::StartJob& start, bool cuda, RunObserver& observer)
    : first_(start.spec().trace().at_step()),
      last_(first_ + start.spec().trace().steps() - 1),
      path_(absl::StrCat(start.checkpoint_dir(), "/", start.job_id(), "-trace-step-", first_,
                         ".json")),
      cuda_(cuda),
      observer_(observer) {
  if (!cuda_ || std::getenv("NVTX_INJECTION64_PATH") == nullptr) return;
  try {
    profiler::enableProfiler(ProfilerConfig(ProfilerState::NVTX), {},
                             {at::RecordScope::USER_SCOPE});
    ranges_ = true;
  } catch (const std::exception& error) {
    observer_.OnLog(absl::StrCat("NVTX ranges: not made: ", error.what()));
  }
}

StepTrace::~StepTrace() {
  if (tracing_ || ranges_) profiler::disableProfiler();
}

void StepTrace::Begin(int64_t step) {
  if (step != first_) return;
  if (ranges_) {
    observer_.OnLog("trace: not made, for NVIDIA Nsight profiles this worker");
  } else {
    Start();
  }
}

void StepTrace::End(int64_t step) {
  if (tracing_ && step >= last_) Write();
}

void StepTrace::Start() {
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (cuda_) activities.insert(ActivityType::CUDA);
  const ProfilerConfig config(ProfilerState::KINETO, /*report_input_shapes=*/true);
  try {
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities);
    tracing_ = true;
  } catch (const std::exception& error) {
    observer_.OnLog(absl::StrCat("trace: not begun: ", error.what()));
  }
}

void StepTrace::Write() {
  tracing_ = false;
  try {
    // Sync: wait for the kernels that the traced steps launched.
    if (cuda_) torch::cuda::synchronize();
    profiler::disableProfiler()->save(path_);
  } catch (const std::exception& error) {
    observer_.OnLog(absl::StrCat("trace: not written: ", error.what()));
    return;
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path_, error);
  observer_.OnLog(error ? absl::StrCat("trace: ", path_, " was not written: ", error.message())
                        : absl::StrCat("trace: ", path_, ", steps ", first_, " to ", last_, ", ",
                                       bytes, " bytes"));
}

}  // namespace genesis
