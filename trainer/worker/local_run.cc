#include "trainer/worker/local_run.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/job/job_file.h"
#include "config/job/job_paths.h"
#include "config/job/job_spec.h"
#include "config/precision/gate.h"
#include "config/precision/precision.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/models/exported/batch_size.h"
#include "trainer/run/training_run.h"
#include "trainer/worker/describe_steps.h"
#include "trainer/worker/error_line.h"
#include "trainer/worker/rank_run.h"
#include "trainer/worker/termination.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;
using training::v1::Finished;
using training::v1::JobSpec;
using training::v1::StartJob;

// Returns a number as JSON, with null for NaN and Inf.
std::string JsonNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

// The handler of SIGTERM and SIGINT. If steps are running, it requests a stop with a checkpoint. A
// rank that still waits for others exits immediately, because c10d's waits cannot be interrupted.
class Ending {
 public:
  Ending(RunControl& control, bool alone) : control_(control), stepping_(alone) {}
  void OnStarted() { stepping_ = true; }
  bool asked() const { return asked_; }
  void OnSignal() {
    asked_ = true;
    if (stepping_) return control_.RequestStop(/*checkpoint=*/true);
    PrintErrorLine("stopped by a signal before all ranks were there and had begun");
    std::_Exit(ToInt(ExitCode::kFailure));
  }

 private:
  RunControl& control_;
  std::atomic<bool> stepping_;
  std::atomic<bool> asked_ = false;
};

class PrintingObserver : public RunObserver {
 public:
  PrintingObserver(const std::string& telemetry, Ending& ending) : ending_(ending) {
    if (!telemetry.empty()) telemetry_.open(telemetry, std::ios::trunc);
  }
  bool good() const { return telemetry_.good(); }

  void OnStarted(const training::v1::Started& started) override {
    ending_.OnStarted();
    total_ = started.total_steps();
    std::cout << "started: " << total_ << " steps, from step " << started.resumed_step()
              << std::endl;
  }
  void OnStep(const StepRecord& record) override {
    if (!telemetry_.is_open()) return;
    telemetry_ << "{\"step\":" << record.step << ",\"loss\":" << JsonNumber(record.loss)
               << ",\"grad_norm\":" << JsonNumber(record.grad_norm)
               << ",\"loss_scale\":" << JsonNumber(record.loss_scale)
               << ",\"learning_rate\":" << JsonNumber(record.learning_rate) << ",\"mode\":\""
               << ShortEnumName(record.mode)
               << "\",\"skipped\":" << (record.skipped ? "true" : "false")
               << ",\"samples\":" << record.samples << "}\n";
  }
  void OnSteps(const training::v1::Steps& steps) override {
    const training::v1::Progress& progress = steps.progress();
    // Print a line per twentieth of the job: ten lines per second are too many for people.
    const int64_t part = progress.step() * 20 / std::max<int64_t>(total_, 1);
    if (part == printed_part_) return;
    printed_part_ = part;
    std::cout << absl::StrFormat("step %d/%d  loss %.6g  grad norm %.4g  %.0f samples/s",
                                 progress.step(), total_, progress.loss(), progress.grad_norm(),
                                 progress.samples_per_second());
    if (progress.loss_scale() != 1) {
      std::cout << absl::StrFormat("  loss scale %g  skipped %d", progress.loss_scale(),
                                   progress.skipped_steps());
    }
    std::cout << std::endl;
  }
  void OnCheckpoint(const training::v1::CheckpointWritten& written) override {
    const training::v1::Checkpoint& checkpoint = written.checkpoint();
    std::cout << absl::StrFormat("checkpoint %s (%d bytes, %.3f s)", checkpoint.path(),
                                 checkpoint.size_bytes(), written.seconds())
              << std::endl;
  }
  void OnLog(const std::string& line) override { std::cout << line << std::endl; }

 private:
  Ending& ending_;
  std::ofstream telemetry_;
  int64_t total_ = 0;
  int64_t printed_part_ = -1;
};

// The observer of ranks other than rank 0, which print nothing because all run the same steps.
class SilentObserver : public RunObserver {
 public:
  explicit SilentObserver(Ending& ending) : ending_(ending) {}
  void OnStarted(const training::v1::Started& /*started*/) override { ending_.OnStarted(); }
  void OnSteps(const training::v1::Steps& /*steps*/) override {}
  void OnCheckpoint(const training::v1::CheckpointWritten& /*written*/) override {}
  void OnLog(const std::string& /*line*/) override {}

 private:
  Ending& ending_;
};

// Returns the file's name as a job ID: "runs/My_Job.yaml" gives "my-job".
std::string JobIdOf(const std::string& spec) {
  std::string id = absl::AsciiStrToLower(fs::path(spec).stem().string());
  for (char& c : id) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return JobIdFault(id).empty() ? id : "job";
}

// Looks up each path of a job next to the job file, then in the folder "trajectories" there, then
// below the dataset root.
void FindFiles(const LocalRunOptions& options, JobSpec& spec) {
  const fs::path folder = fs::absolute(options.spec).parent_path();
  for (const JobPath& named : PathsOf(spec)) {
    // An absolute path replaces the folder.
    std::vector<fs::path> places = {folder / named.path, folder / "trajectories" / named.path};
    if (!options.datasets_root.empty()) {
      places.push_back(fs::path(options.datasets_root) / named.path);
    }
    const auto found = std::find_if(places.begin(), places.end(), [](const fs::path& place) {
      std::error_code error;
      return fs::exists(place, error);
    });
    SetPath(spec, named.field,
            (found != places.end() ? fs::canonical(*found) : places.front()).string());
  }
}

// Finds the checkpoint with which the job begins in the folder of checkpoints.
absl::Status FindBeginning(StartJob& start) {
  const auto find = [&start](const char* field,
                             const std::string& id) -> absl::StatusOr<std::string> {
    std::error_code error;
    const fs::path path = fs::canonical(fs::path(start.checkpoint_dir()) / (id + ".pt"), error);
    if (!error) return path.string();
    return absl::NotFoundError(absl::StrCat(field, ": there is no checkpoint ", QuoteValue(id),
                                            " in ", start.checkpoint_dir(),
                                            "; --checkpoint-dir names another folder"));
  };
  JobSpec& spec = *start.mutable_spec();
  if (!spec.start_from_checkpoint().empty()) {
    const auto path = find("start_from_checkpoint", spec.start_from_checkpoint());
    if (!path.ok()) return path.status();
    spec.mutable_model()->set_initial_weights(*path);
  }
  if (spec.continue_from_checkpoint().empty()) return absl::OkStatus();
  const auto path = find("continue_from_checkpoint", spec.continue_from_checkpoint());
  if (!path.ok()) return path.status();
  start.set_continue_from(*path);
  return absl::OkStatus();
}

absl::StatusOr<StartJob> Prepare(const LocalRunOptions& options,
                                 const training::v1::DeviceInfo& device,
                                 const Environment& environment) {
  absl::StatusOr<JobSpec> spec = ReadJobFile(options.spec);
  if (!spec.ok()) return spec.status();
  const std::vector<FieldError> errors = ValidateJobSpec(*spec);
  if (!errors.empty()) return ToStatus(errors, options.spec);
  StartJob start;
  start.set_job_id(JobIdOf(options.spec));
  *start.mutable_spec() = WithDefaults(*spec, LossScaleSettings());
  FindFiles(options, *start.mutable_spec());
  FillBatchSize(*start.mutable_spec());
  const PrecisionGate gate = ReadPrecisionGate(environment, /*yaml_allows=*/true);
  for (const std::string& error : gate.errors) PrintErrorLine(error);
  const CpuFallback fallback = options.emulate_fp16 ? CpuFallback::kEmulate : CpuFallback::kBf16;
  *start.mutable_precision() =
      ComputeEffectivePrecision(spec->precision().mode(), gate, fallback, device);
  const std::vector<training::v1::PrecisionMode> allowed =
      AllowedModes(start.spec().precision(), gate, fallback, device);
  start.mutable_allowed_modes()->Assign(allowed.begin(), allowed.end());
  start.set_checkpoint_dir(options.checkpoint_dir);
  if (absl::Status found = FindBeginning(start); !found.ok()) return found;
  start.set_compiled_dir(options.compiled_dir);
  start.set_cuda_graphs(options.cuda_graphs);
  if (options.resume == kResumeLatest) {
    const std::vector<std::string> paths =
        CheckpointFolder(start.checkpoint_dir(), start.job_id()).Paths();
    start.mutable_resume_from()->Assign(paths.begin(), paths.end());
  } else if (!options.resume.empty()) {
    std::error_code error;
    const fs::path real = fs::canonical(options.resume, error);
    start.add_resume_from(error ? options.resume : real.string());
  }
  return start;
}

// Returns why a job cannot be trained by the number of ranks that were started, or "".
std::string RankFault(const JobSpec& spec, const RankPlace& place) {
  const int ranks = spec.distributed().ranks();
  if (ranks > 0 && ranks != place.size) {
    return absl::StrCat("distributed.ranks is ", ranks,
                        ", and processes were started: ", place.size,
                        "; start as many (torchrun --nproc_per_node=", ranks,
                        "), give the job to genesisd, or change distributed.ranks");
  }
  if (place.size == 1 || IsDistributed(spec)) return "";
  return absl::StrCat(
      place.size_variable, " is ", place.size,
      " and training.use_ddp is false: each rank would train the whole job and write "
      "the same checkpoints; set training.use_ddp to true, or start one process");
}

// Prints a failure, if any. Returns the exit code. `asked`: a signal requested the end.
int Report(const Finished& finished, bool asked) {
  switch (finished.outcome()) {
    case Finished::OUTCOME_COMPLETED:
      return ToInt(ExitCode::kOk);
    case Finished::OUTCOME_STOPPED:
      return ToInt(ExitCode::kFailure);
    default:
      PrintErrorLine(training::v1::FailureCause_Name(finished.failure().cause()), ": ",
                     finished.failure().message());
      // This rank may have failed because other ranks ended first on the same signal.
      if (asked && finished.failure().cause() == training::v1::FAILURE_CAUSE_WORKER_EXIT) {
        return ToInt(ExitCode::kFailure);
      }
      return ToInt(ExitCode::kJobFailed);
  }
}

void PrintFigures(const Finished& finished) {
  if (finished.outcome() != Finished::OUTCOME_COMPLETED) return;
  if (finished.peak_device_bytes() > 0) {
    std::cout << "peak device memory " << finished.peak_device_bytes() << " bytes\n";
  }
  if (!finished.has_held_out()) return;
  std::cout << absl::StrFormat(
      "held-out error on %d transitions: model %.6g, persistence %.6g, mean %.6g\n",
      finished.held_out().transitions(), finished.held_out().model(),
      finished.held_out().persistence(), finished.held_out().mean());
}

}  // namespace

int RunLocal(const LocalRunOptions& options, const RankPlace& place,
             const training::v1::DeviceInfo& device) {
  absl::StatusOr<StartJob> start = Prepare(options, device, ProcessEnvironment);
  const std::string fault =
      start.ok() ? RankFault(start->spec(), place) : std::string(start.status().message());
  if (!fault.empty()) {
    PrintErrorLine(fault);
    return ToInt(ExitCode::kUsage);
  }
  RunControl control;
  Ending ending(control, /*alone=*/place.size == 1);
  const TerminationWatch watch([&ending] { ending.OnSignal(); });
  if (place.rank > 0) {
    SilentObserver silent(ending);
    return Report(RunRank(*start, place, device, control, silent), ending.asked());
  }
  PrintingObserver observer(options.telemetry, ending);
  if (!observer.good()) {
    PrintErrorLine("--telemetry ", options.telemetry, ": cannot be written");
    return ToInt(ExitCode::kUsage);
  }
  std::cout << "job " << start->job_id() << " on " << device.name() << " (" << device.description()
            << ")" << std::endl;
  if (place.size > 1) {
    std::cout << "ranks: " << place.size << ", each with batches of "
              << start->spec().training().batch_size() << std::endl;
  }
  RankGroup alone;
  const Finished finished = place.size > 1 ? RunRank(*start, place, device, control, observer)
                                           : RunTraining(*start, device, control, observer, alone);
  PrintFigures(finished);
  return Report(finished, ending.asked());
}

int RunDescribeStep(const LocalRunOptions& options, const training::v1::DeviceInfo& device) {
  // Whether a mode may run is decided when the job starts; its code may be compiled before that.
  const auto allowing = [](const std::string& name) -> std::optional<std::string> {
    return name == "ENABLE_FP16_TRAINING" ? std::optional<std::string>("true") : std::nullopt;
  };
  const absl::StatusOr<StartJob> start = Prepare(options, device, allowing);
  const absl::StatusOr<std::string> text =
      start.ok() ? DescribeSteps(*start) : absl::StatusOr<std::string>(start.status());
  if (!text.ok()) {
    PrintErrorLine(text.status().message());
    return ToInt(ExitCode::kUsage);
  }
  std::cout << *text << std::endl;
  return ToInt(ExitCode::kOk);
}

}  // namespace genesis
