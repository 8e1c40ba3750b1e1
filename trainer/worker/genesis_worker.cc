// genesis-worker: trains one job, for a daemon or standalone.

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "base/environment.h"
#include "base/exit_code.h"
#include "base/files/memory_socket.h"
#include "base/processors.h"
#include "base/version.h"
#include "trainer/distributed/rank_place.h"
#include "trainer/kernels/own_kernels.h"
#include "trainer/predict/predictor.h"
#include "trainer/runtime/device.h"
#include "trainer/runtime/run_failure.h"
#include "trainer/runtime/start_settings.h"
#include "trainer/worker/checkpoint_tools.h"
#include "trainer/worker/daemon_link.h"
#include "trainer/worker/error_line.h"
#include "trainer/worker/local_run.h"
#include "trainer/worker/termination.h"

namespace {

constexpr char kHelp[] = R"(genesis-worker trains one job and exits.

  genesis-worker --spec job.yaml [options]         run a job file without a daemon
  genesis-worker --daemon HOST:PORT [options]       take a job from genesisd on another host
  genesis-worker --daemon unix:PATH --worker-id ID  take a job from genesisd (which starts it so)
  genesis-worker --predict                         predict for genesisd (which starts it so)
  genesis-worker --verify FILE                     read a checkpoint from end to end
  genesis-worker --describe-device                 print LibTorch and the device, and exit
  genesis-worker --describe-step job.yaml          print what genesisctl compile compiles, as JSON
  genesis-worker --export FILE --to FILE.safetensors [--average]  its weights, or their average

With --spec:
  --checkpoint-dir DIR   where checkpoints go. Default: ./checkpoints
  --resume FILE          continue from this checkpoint; "latest" is the newest of the job in
                         --checkpoint-dir that can be used, or the beginning without one
  --telemetry FILE       write one line of JSON per step: step, loss, grad_norm, loss_scale,
                         learning_rate, mode, skipped, samples
  --compiled-dir DIR     run the compiled step that genesisctl compile put there, if it fits
  --cuda-graphs          on CUDA, capture a step once and replay it, where it can be
  --emulate-fp16         run FP16 modes on a CPU, 20 to 140 times slower than FP32, to rehearse

  Started by torchrun --no-python, srun, mpirun or mpiexec, several train one job that has
  training.use_ddp: true.

With --describe-step:
  --datasets-root DIR    where the data of the job is looked for too
  --compiled-dir DIR     also say whether the worker takes the packages there, or why not

With --daemon HOST:PORT, whose settings have workers.remote: true:
  --checkpoint-dir DIR   the daemon's checkpoints.dir, which this host must see at the same path
  --token-file FILE      a token of the role worker
  --tls-ca FILE          authority of the daemon's certificate
  --tls-cert FILE, --tls-key FILE  a client certificate and its key
  --reservation NAME     serve the job for which the daemon asked a cluster under this name

All:
  --threads N            threads for arithmetic at most, 1 to 1024; a small model uses fewer.
                         Default: one per processor that affinity and cgroup allow
  --device NAME          cpu, or cuda:<n>. Default: the first CUDA device, else cpu
  --help, --version

Reduced precision runs only with ENABLE_FP16_TRAINING=true. GENESIS_OWN_KERNELS=false leaves every
operator to LibTorch.

Exit codes: 0 done; 1 stopped by a signal, or the daemon was lost; 2 unusable flag or job file;
6 the job failed.
)";

struct Flags {
  genesis::LocalRunOptions local;
  std::string verify;
  std::string export_from;
  std::string export_to;
  bool average = false;
  std::string server;  // Value of --daemon; empty for none.
  genesis::DaemonToServe daemon;
  std::string device;
  int threads = 0;
  bool describe_device = false;
  std::string describe_step;
  bool predict = false;
  bool help = false;
  bool version = false;
};

int Usage(const std::string& fault) {
  genesis::PrintErrorLine("genesis-worker: ", fault, "; see genesis-worker --help");
  return genesis::ToInt(genesis::ExitCode::kUsage);
}

// Returns the flag `name` if it is one that takes no value, otherwise null.
bool* Switch(const std::string& name, Flags& flags) {
  const std::pair<const char*, bool*> switches[] = {{"--help", &flags.help},
                                                    {"--version", &flags.version},
                                                    {"--describe-device", &flags.describe_device},
                                                    {"--average", &flags.average},
                                                    {"--predict", &flags.predict},
                                                    {"--cuda-graphs", &flags.local.cuda_graphs},
                                                    {"--emulate-fp16", &flags.local.emulate_fp16}};
  for (const auto& [known, value] : switches) {
    if (name == known) return value;
  }
  return nullptr;
}

// Returns "" or the error. A value is the next argument or follows '='.
std::string ParseFlags(const std::vector<std::string>& arguments, Flags& flags) {
  std::string threads;
  const std::pair<const char*, std::string*> valued[] = {
      {"--spec", &flags.local.spec},
      {"--checkpoint-dir", &flags.local.checkpoint_dir},
      {"--resume", &flags.local.resume},
      {"--telemetry", &flags.local.telemetry},
      {"--verify", &flags.verify},
      {"--export", &flags.export_from},
      {"--to", &flags.export_to},
      {"--daemon", &flags.server},
      {"--worker-id", &flags.daemon.worker_id},
      {"--threads", &threads},
      {"--token-file", &flags.daemon.address.token_file},
      {"--tls-ca", &flags.daemon.address.tls_ca},
      {"--tls-cert", &flags.daemon.address.tls_cert},
      {"--tls-key", &flags.daemon.address.tls_key},
      {"--reservation", &flags.daemon.reservation},
      {"--device", &flags.device},
      {"--compiled-dir", &flags.local.compiled_dir},
      {"--datasets-root", &flags.local.datasets_root},
      {"--describe-step", &flags.describe_step}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    if (bool* const on = Switch(name, flags); on != nullptr) {
      *on = true;
      continue;
    }
    const auto* const flag = std::find_if(std::begin(valued), std::end(valued),
                                          [&](const auto& known) { return known.first == name; });
    if (flag == std::end(valued)) return "unknown argument " + arguments[i];
    if (equals == std::string::npos && i + 1 == arguments.size()) return name + " needs a value";
    *flag->second = equals != std::string::npos ? arguments[i].substr(equals + 1) : arguments[++i];
  }
  int number = 0;
  if (!flags.device.empty() && flags.device != "cpu" &&
      !(flags.device.rfind("cuda:", 0) == 0 && absl::SimpleAtoi(flags.device.substr(5), &number) &&
        number >= 0)) {
    return "--device is " + flags.device + "; accepted: cpu, or cuda:<n>";
  }
  if (!threads.empty() &&
      (!absl::SimpleAtoi(threads, &flags.threads) || flags.threads < 1 || flags.threads > 1024)) {
    return "--threads is " + threads + "; accepted: 1 to 1024";
  }
  return "";
}

// Serves as an empty environment, because only processes with `--spec` are ranks of a launcher.
std::optional<std::string> NoVariables(const std::string& /*name*/) { return std::nullopt; }

int Main(int argc, char** argv) {
  // Before other threads start, because they inherit the signal mask.
  genesis::BlockTerminationSignals();
  // Turns a write beyond the file size limit (RLIMIT_FSIZE) into an error, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // Gloo writes without MSG_NOSIGNAL to a rank that may have ended, and the reader of the output
  // may exit. Make both write errors, which end no job.
  std::signal(SIGPIPE, SIG_IGN);
  Flags flags;
  const std::string fault = ParseFlags({argv + 1, argv + argc}, flags);
  if (!fault.empty()) return Usage(fault);
  if (flags.help || flags.version) {
    std::cout << (flags.help ? kHelp : std::string("genesis-worker ") + genesis::kVersion + "\n");
    return genesis::ToInt(genesis::ExitCode::kOk);
  }
  if (!flags.verify.empty()) return genesis::RunVerify(flags.verify);
  if (!flags.export_from.empty()) {
    return genesis::RunExport(flags.export_from, flags.export_to, flags.average);
  }
  const bool attach = !flags.server.empty();
  const bool describes = flags.describe_device || !flags.describe_step.empty();
  const bool modes[] = {!flags.local.spec.empty(), attach, flags.predict};
  if (std::count(std::begin(modes), std::end(modes), true) != 1 && !describes) {
    return Usage("exactly one of --spec, --daemon and --predict is needed");
  }
  flags.daemon.address.server = flags.server;
  flags.daemon.checkpoint_dir = flags.local.checkpoint_dir;
  if (attach && flags.daemon.remote() && flags.daemon.checkpoint_dir.front() != '/') {
    return Usage("--checkpoint-dir is " + flags.daemon.checkpoint_dir +
                 "; accepted with --daemon HOST:PORT: an absolute path, that of the daemon's "
                 "checkpoints.dir");
  }

  const absl::StatusOr<genesis::RankPlace> place = genesis::ReadRankPlace(
      flags.local.spec.empty() || describes ? NoVariables : genesis::ProcessEnvironment);
  if (!place.ok()) return Usage(std::string(place.status().message()));

  const absl::StatusOr<bool> own_kernels = genesis::OwnKernelsWanted(genesis::ProcessEnvironment);
  if (!own_kernels.ok()) return Usage(std::string(own_kernels.status().message()));

  genesis::RestartWithSettings(argv);
  std::string note;
  // Each rank of a host uses its own GPU, if there are any.
  if (flags.device.empty() && place->size > 1) flags.device = "cuda:" + place->gpu;
  const genesis::training::v1::DeviceInfo device = genesis::DetectDevice(flags.device, &note);
  if (!note.empty()) genesis::PrintErrorLine(note);
  // Keeps PyTorch's profiler from reporting the missing GPU as an error.
  if (!device.cuda()) setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  if (flags.describe_device) {
    std::cout << genesis::DescribeDevice(device);
    return genesis::ToInt(genesis::ExitCode::kOk);
  }
  if (!flags.describe_step.empty()) {
    flags.local.spec = flags.describe_step;
    return genesis::RunDescribeStep(flags.local, device);
  }
  if (*own_kernels) genesis::UseOwnKernels();
  // The ranks of a host share its processors.
  const int share = std::max(1, genesis::UsableProcessors() / place->local_size);
  genesis::WarmUp(device, flags.threads > 0 ? flags.threads : share);
  if (flags.predict) {
    return genesis::RunPredictor(genesis::MemorySocket(STDIN_FILENO, absl::InfiniteDuration()));
  }
  if (attach) return genesis::RunAttached(flags.daemon, device);
  return genesis::RunLocal(flags.local, *place, device);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::exception& error) {
    // RunTraining turns exceptions of a job into its failure. Exceptions here mean that the process
    // lacks something it needs to start.
    genesis::PrintErrorLine("genesis-worker: ", genesis::ExplainException(error).message);
    return genesis::ToInt(genesis::ExitCode::kFailure);
  }
}
