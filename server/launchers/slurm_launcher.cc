#include "server/launchers/slurm_launcher.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/text/text.h"

namespace genesis {
namespace {

constexpr char kFormat[] = "--format=%i|%T|%r|%j";

std::string Quoted(const std::string& word) {
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

// Returns how a Slurm program ended and its errors, for a message.
std::string Said(const CommandResult& result) {
  const std::string text(absl::StripAsciiWhitespace(result.errors));
  return absl::StrCat(result.signal == 0 ? absl::StrCat("exited with ", result.exit_code)
                                         : absl::StrCat("was ended by signal ", result.signal),
                      text.empty() ? "" : ": ", OneLine(text, kMaxLineBytes));
}

// The meaning of a job state; see squeue(1), JOB STATE CODES.
struct StateMeaning {
  bool running = false;
  LaunchEnd end = LaunchEnd::kNone;
};

StateMeaning MeaningOf(absl::string_view state) {
  static const auto* const meanings = new std::map<absl::string_view, StateMeaning>{
      {"RUNNING", {true, LaunchEnd::kNone}},         {"COMPLETING", {true, LaunchEnd::kNone}},
      {"SUSPENDED", {true, LaunchEnd::kNone}},       {"STOPPED", {true, LaunchEnd::kNone}},
      {"SIGNALING", {true, LaunchEnd::kNone}},       {"RESIZING", {true, LaunchEnd::kNone}},
      {"STAGE_OUT", {true, LaunchEnd::kNone}},       {"COMPLETED", {false, LaunchEnd::kDone}},
      {"TIMEOUT", {false, LaunchEnd::kDone}},        {"CANCELLED", {false, LaunchEnd::kCancelled}},
      {"REVOKED", {false, LaunchEnd::kCancelled}},   {"DEADLINE", {false, LaunchEnd::kCancelled}},
      {"PREEMPTED", {false, LaunchEnd::kPreempted}}, {"FAILED", {false, LaunchEnd::kFailed}},
      {"BOOT_FAIL", {false, LaunchEnd::kFailed}},    {"NODE_FAIL", {false, LaunchEnd::kFailed}},
      {"OUT_OF_MEMORY", {false, LaunchEnd::kFailed}}};
  const auto known = meanings->find(state);
  // Everything else counts as pending: PENDING, CONFIGURING, and states of newer versions.
  return known == meanings->end() ? StateMeaning() : known->second;
}

}  // namespace

std::string SlurmScript(const std::vector<std::string>& worker_words) {
  return absl::StrCat(
      "#!/bin/sh\n"
      "# Written by genesisd. A worker that fails takes the others along.\n"
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH\n"
      "export PATH\n"
      "exec srun --kill-on-bad-exit=1 --export=ALL --input=none ",
      absl::StrJoin(
          worker_words, " ",
          [](std::string* out, const std::string& word) { absl::StrAppend(out, Quoted(word)); }),
      "\n");
}

std::vector<std::string> SbatchWords(const SlurmSettings& settings, const LaunchRequest& request) {
  std::vector<std::string> words = {"--parsable"};
  // The operator's options come first, because the last one wins and the daemon needs its own.
  for (const absl::string_view word : absl::StrSplit(settings.options, ' ', absl::SkipEmpty())) {
    words.push_back(absl::StrCat("--", word));
  }
  const std::pair<const char*, std::string> options[] = {
      {"--partition=", settings.partition},
      {"--account=", settings.account},
      {"--time=", settings.time_limit},
      {"--gpus-per-task=",
       settings.gpus_per_task > 0 ? absl::StrCat(settings.gpus_per_task) : std::string()}};
  for (const auto& [option, value] : options) {
    if (!value.empty()) words.push_back(absl::StrCat(option, value));
  }
  words.insert(
      words.end(),
      {absl::StrCat("--job-name=", request.name),
       absl::StrCat("--comment=genesis job ", request.job_id),
       absl::StrCat("--ntasks=", request.workers),
       absl::StrCat("--cpus-per-task=", settings.cpus_per_task),
       absl::StrCat("--signal=TERM@", settings.warn_seconds), "--no-requeue",
       "--dependency=singleton",
       // The daemon's environment may contain secrets.
       "--export=NIL", "--chdir=/", "--open-mode=append",
       // Slurm interprets '%' in a file name as the start of a pattern.
       absl::StrCat("--output=", absl::StrReplaceAll(settings.log_dir, {{"%", "%%"}}), "/%x.log")});
  return words;
}

std::vector<LaunchStatus> ReadSqueue(const std::string& output, const std::string& prefix) {
  std::vector<LaunchStatus> all;
  for (const absl::string_view line : absl::StrSplit(output, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits('|', 3));
    if (fields.size() != 4 || !absl::StartsWith(fields[3], prefix)) continue;
    LaunchStatus& status = all.emplace_back();
    status.cluster_id = OneLine(fields[0], kMaxNameBytes);
    status.name = OneLine(fields[3], kMaxNameBytes);
    const StateMeaning meaning = MeaningOf(fields[1]);
    status.running = meaning.running;
    status.end = meaning.end;
    const bool says_why = !fields[2].empty() && fields[2] != "None" && fields[2] != fields[1];
    status.reason = OneLine(
        absl::StrCat(fields[1], says_why ? ": " : "", says_why ? fields[2] : ""), kMaxLineBytes);
  }
  return all;
}

absl::StatusOr<CommandResult> SlurmLauncher::Run(const std::string& program,
                                                 std::vector<std::string> words,
                                                 const std::string& input) {
  words.insert(words.begin(),
               settings_.bin_dir.empty() ? program : absl::StrCat(settings_.bin_dir, "/", program));
  absl::StatusOr<CommandResult> result = RunCommand(words, input, CommandLimits(), stopping_);
  if (!absl::IsNotFound(result.status())) return result;
  return absl::NotFoundError(absl::StrCat(
      result.status().message(), "; install Slurm's client programs on the daemon's host",
      settings_.bin_dir.empty() ? ", or set slurm.bin_dir to their folder"
                                : ", or correct slurm.bin_dir"));
}

absl::StatusOr<std::string> SlurmLauncher::Submit(const LaunchRequest& request) {
  const absl::StatusOr<std::vector<LaunchStatus>> before = Poll(request.name);
  if (!before.ok()) return before.status();
  // An earlier daemon may have submitted the job and died before the reply.
  for (const LaunchStatus& known : *before) {
    if (known.name == request.name) return known.cluster_id;
  }
  const absl::StatusOr<CommandResult> result =
      Run("sbatch", SbatchWords(settings_, request),
          SlurmScript(WorkerWords(worker_, request.name, settings_.cpus_per_task)));
  if (!result.ok()) return result.status();
  if (result->signal != 0) {
    return absl::UnavailableError(absl::StrCat("Slurm was not asked: sbatch ", Said(*result)));
  }
  if (result->exit_code != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("Slurm refuses the job: sbatch ", Said(*result)));
  }
  // sbatch prints "17", or "17;cluster".
  const std::string id(absl::StripAsciiWhitespace(
      absl::string_view(result->output).substr(0, result->output.find(';'))));
  if (id.empty() || !std::all_of(id.begin(), id.end(), absl::ascii_isdigit)) {
    return absl::UnknownError(absl::StrCat("sbatch printed \"",
                                           OneLine(result->output, kMaxNameBytes),
                                           "\"; expected the number of a job"));
  }
  return id;
}

absl::StatusOr<std::vector<LaunchStatus>> SlurmLauncher::Poll(const std::string& prefix) {
  const absl::StatusOr<CommandResult> result =
      Run("squeue", {"--noheader", "--me", "--states=all", kFormat});
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) {
    return absl::UnavailableError(absl::StrCat("Slurm cannot be asked: squeue ", Said(*result)));
  }
  return ReadSqueue(result->output, prefix);
}

absl::Status SlurmLauncher::Cancel(const std::string& name, const std::string& cluster_id) {
  std::vector<std::string> words = {"--quiet"};
  if (cluster_id.empty()) {
    words.insert(words.end(), {"--me", absl::StrCat("--name=", name)});
  } else {
    words.push_back(cluster_id);
  }
  const absl::StatusOr<CommandResult> result = Run("scancel", words);
  if (!result.ok()) return result.status();
  const bool gone = absl::StrContains(result->errors, "Invalid job id") ||
                    absl::StrContains(result->errors, "already complet");
  if (result->exit_code == 0 || gone) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("Slurm does not end job ",
                                             cluster_id.empty() ? name : cluster_id, ": scancel ",
                                             Said(*result)));
}

}  // namespace genesis
