#include "cli/commands/command_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/commands/complete.h"

namespace genesis::cli {
namespace {

std::string OptionHelp(const OptionRow& option) {
  std::string names = absl::StrCat("--", option.name);
  if (option.short_name[0] != '\0') names = absl::StrCat("-", option.short_name, ", ", names);
  if (option.value[0] != '\0') absl::StrAppend(&names, " ", option.value);
  constexpr size_t kColumn = 26;
  const size_t spaces = names.size() < kColumn ? kColumn - names.size() : 1;
  return absl::StrCat("  ", names, std::string(spaces, ' '), option.help, "\n");
}

std::string CommandWithOperands(const CommandRow& command) {
  return command.operands[0] == '\0' ? command.name
                                     : absl::StrCat(command.name, " ", command.operands);
}

std::string OverallHelp() {
  std::string text =
      "Usage: genesisctl [OPTION]... COMMAND [OPTION]...\n"
      "\n"
      "Talks to genesisd.\n"
      "\n"
      "Commands:\n";
  for (const CommandRow& command : CommandTable()) {
    const std::string name = CommandWithOperands(command);
    constexpr size_t kColumn = 26;
    const size_t spaces = name.size() < kColumn ? kColumn - name.size() : 1;
    absl::StrAppend(&text, "  ", name, std::string(spaces, ' '), command.summary, "\n");
  }
  text += "\nOptions:\n";
  for (const OptionRow& option : GlobalOptions()) text += OptionHelp(option);
  absl::StrAppend(&text, "\ngenesisctl COMMAND --help prints the options of a command.\n\n",
                  "Exit codes:\n", ExitCodesHelp("genesisctl"));
  return text;
}

}  // namespace

const std::vector<CommandRow>& CommandTable() {
  static const auto& table = *new std::vector<CommandRow>{
      {"quickstart",
       "[world_model|transformer|radio_unet|module|ranks]",
       0,
       1,
       "Print a commented job file to begin with",
       {{"file", "f", "FILE", "Write it there instead; a file that exists is kept"}},
       &RunQuickstart},
      {"train",
       "",
       0,
       0,
       "Submit the job that a job file describes",
       {{"file", "f", "FILE", "The job file; - reads it from standard input (required)"},
        {"set", "", "FIELD=VALUE", "Set a field of the job file; may be repeated"},
        {"job-id", "", "ID", "Name of the job; makes the call repeatable (default: generated)"},
        {"upload", "", "", "Send the files of this machine that the job file names"},
        {"watch", "", "", "Follow the job until it ends"},
        {"validate-only", "", "", "Check the job file with the daemon and submit nothing"}},
       &RunTrain},
      {"jobs",
       "",
       0,
       0,
       "List jobs, newest first",
       {{"state", "", "STATE", "Only jobs in this state, such as RUNNING; may be repeated"},
        {"owner", "", "NAME", "Only jobs of this owner"},
        {"label", "", "KEY[=VALUE]", "Only jobs with this label; may be repeated"},
        {"id-prefix", "", "TEXT", "Only jobs whose id begins so"},
        {"order", "", "newest|oldest|priority", "Default newest"}},
       &RunJobs},
      {"job", "JOB", 1, 1, "Show one job", {}, &RunJob},
      {"watch",
       "JOB",
       1,
       1,
       "Follow a job until it ends; Ctrl-C ends the watch, not the job",
       {{"events", "", "", "Print what happened and what happens, one line each"}},
       &RunWatch},
      {"top", "", 0, 0, "Show jobs, workers and devices live; q ends it", {}, &RunTop},
      {"events",
       "",
       0,
       0,
       "Print the events of all jobs, oldest first",
       {{"follow", "f", "", "Go on with new events; Ctrl-C ends it"},
        {"cursor", "", "N", "Only events after this one (default: all that are kept)"},
        {"job", "", "JOB", "Only events of this job"},
        {"owner", "", "NAME", "Only events of jobs of this owner"},
        {"label", "", "KEY[=VALUE]", "Only events of jobs with this label; may be repeated"},
        {"kind", "", "KIND", "Only this kind, such as state_changed; may be repeated"},
        {"state", "", "STATE", "Only events that led to this state; may be repeated"}},
       &RunEvents},
      {"logs",
       "JOB",
       1,
       1,
       "Print the log of a job's workers, the newest 1000 lines",
       {{"follow", "f", "", "Go on until the job ends; Ctrl-C ends it"},
        {"tail", "", "N", "Only the newest N lines"}},
       &RunLogs},
      {"plot",
       "JOB",
       1,
       1,
       "Draw a metric over the steps of a job",
       {{"metric", "", "METRIC", "Such as loss (default), grad_norm, learning_rate, step_seconds"},
        {"log", "", "", "Logarithmic scale"},
        {"file", "f", "FILE", "Write an SVG image instead; - for standard output"}},
       &RunPlot},
      {"compare",
       "JOB JOB...",
       2,
       8,
       "Compare 2 to 8 jobs: losses, speed, and the differences of their job files",
       {},
       &RunCompare},
      {"pause", "JOB", 1, 1, "Checkpoint a job and release its slot", {}, &RunPause},
      {"resume", "JOB", 1, 1, "Queue a paused job again", {}, &RunResume},
      {"cancel",
       "JOB",
       1,
       1,
       "Stop a job after a checkpoint",
       {{"now", "", "", "End its worker at once, without a checkpoint"}},
       &RunCancel},
      {"update",
       "JOB",
       1,
       1,
       "Change the priority or the labels of a job",
       {{"priority", "", "N", "-100 to 100; the higher starts first"},
        {"label", "", "KEY=VALUE", "May be repeated; other labels are removed"},
        {"no-labels", "", "", "Remove all labels"}},
       &RunUpdate},
      {"report",
       "JOB NAME=VALUE...",
       2,
       65,
       "Report metrics that were measured with the weights of one step of a job",
       {{"step", "", "N", "The step"},
        {"checkpoint", "", "CHECKPOINT", "The checkpoint that was measured, instead of the step"}},
       &RunReport},
      {"delete",
       "JOB",
       1,
       1,
       "Forget a job that has ended",
       {{"checkpoints", "", "", "Remove its checkpoints too"}},
       &RunDelete},
      {"sweep",
       "",
       0,
       0,
       "Search for good values of fields of a job file: one job for each trial",
       {{"file", "f", "FILE", "The job file; - reads it from standard input (required)"},
        {"over", "", "FIELD=VALUES", "A,B,... or LOW..HIGH[:log]; may be repeated (required)"},
        {"trials", "", "N", "Draw N trials at random (default: a grid of all combinations)"},
        {"seed", "", "N", "Seed of the random search"},
        {"metric", "", "METRIC", "A metric of evaluations; default loss, the held-out loss"},
        {"maximize", "", "", "Larger values of the metric are better"},
        {"halving", "", "N", "At each rung, stop all but the best 1/N of the trials"},
        {"parallel", "", "N", "Jobs at the same time (default 4)"},
        {"set", "", "FIELD=VALUE", "Set a field of the job file; may be repeated"},
        {"sweep-id", "", "ID", "Name of the sweep; makes the call repeatable"},
        {"upload", "", "", "Send the files of this machine that the job file names"},
        {"watch", "", "", "Follow the sweep until it ends"},
        {"validate-only", "", "", "Check every trial with the daemon and submit nothing"}},
       &RunSweep},
      {"sweeps", "", 0, 0, "List sweeps, newest first", {}, &RunSweeps},
      {"trials",
       "SWEEP",
       1,
       1,
       "Show the trials of a sweep, best first",
       {{"watch", "", "", "Follow the sweep until it ends"}},
       &RunTrials},
      {"sweep-cancel", "SWEEP", 1, 1, "Stop a sweep and its jobs", {}, &RunSweepCancel},
      {"checkpoint",
       "JOB",
       1,
       1,
       "Write a checkpoint of a running job now",
       {{"name", "", "NAME", "Keep it under this name until it is deleted"}},
       &RunCheckpoint},
      {"checkpoints",
       "[JOB]",
       0,
       1,
       "List checkpoints of all jobs or one, newest first",
       {},
       &RunCheckpoints},
      {"checkpoint-download",
       "CHECKPOINT",
       1,
       1,
       "Fetch the file of a checkpoint; continues an earlier attempt",
       {{"file", "f", "FILE", "Where to (default: ID.pt)"}},
       &RunCheckpointDownload},
      {"artifacts",
       "JOB",
       1,
       1,
       "List the other outputs of a job: log, traces, exported weights",
       {},
       &RunArtifacts},
      {"artifact-download",
       "JOB NAME",
       2,
       2,
       "Fetch one of them; continues an earlier attempt",
       {{"file", "f", "FILE", "Where to (default: NAME)"}},
       &RunArtifactDownload},
      {"checkpoint-import",
       "FILE",
       1,
       1,
       "Import a checkpoint written elsewhere",
       {{"id", "", "ID", "What to call it (required)"}},
       &RunCheckpointImport},
      {"checkpoint-delete",
       "CHECKPOINT",
       1,
       1,
       "Delete a checkpoint and its file",
       {},
       &RunCheckpointDelete},
      {"upload",
       "FILE",
       1,
       1,
       "Send a dataset or a model of this machine; prints the path that a job file names",
       {},
       &RunUpload},
      {"datasets", "", 0, 0, "List the datasets below the dataset root", {}, &RunDatasets},
      {"dataset-delete", "NAME", 1, 1, "Delete a dataset for good", {}, &RunDatasetDelete},
      {"stats", "", 0, 0, "Show the counters of all jobs, and the workers", {}, &RunStats},
      {"history",
       "",
       0,
       0,
       "Show how jobs did over time",
       {{"since", "", "TIME", "How far back, such as 30m, 24h or 7d; or all (default 24h)"},
        {"job", "", "JOB", "Only this job"},
        {"csv", "", "", "As CSV with the columns of the table fp16_stats"}},
       &RunHistory},
      {"webhooks",
       "",
       0,
       0,
       "List events that webhook endpoints have not received",
       {},
       &RunWebhooks},
      {"backup", "", 0, 0, "Copy the database of the daemon while it runs", {}, &RunBackup},
      {"workers", "", 0, 0, "List worker processes and devices", {}, &RunWorkers},
      {"drain-worker",
       "WORKER",
       1,
       1,
       "End a worker; its job is checkpointed and queued again",
       {},
       &RunDrainWorker},
      {"precision",
       "[show|disable|allow]",
       0,
       1,
       "Show whether reduced precision may run, disable it, or allow it again",
       {{"running", "", "new-attempts|next-step|at-once",
         "With disable, when running jobs follow; with new-attempts, the default, they go on"},
        {"reason", "", "TEXT", "Reason, for the record"}},
       &RunPrecision},
      {"open",
       "[JOB]",
       0,
       1,
       "Print the address of the dashboard, which signs one browser in, once",
       {},
       &RunOpen},
      {"info", "", 0, 0, "Show version, state and settings of the daemon", {}, &RunInfo},
      {"config",
       "show|reload|validate",
       1,
       1,
       "Show the settings in effect, reload them, or validate what a reload would do",
       {},
       &RunConfig},
      {"doctor",
       "",
       0,
       0,
       "Look at settings, GPU, LibTorch, disk, ports, limits and the daemon, and print what to fix",
       {{"config", "", "FILE", "The settings file of the daemon"},
        {"data-dir", "", "DIR", "Its data folder"},
        {"environment-file", "", "FILE",
         "Variables on top of those here, as the unit reads /etc/genesis/environment"}},
       &RunDoctor},
      {"compile",
       "FILE",
       1,
       1,
       "Compile the training step of a job file for the workers of this machine",
       {{"python", "", "FILE",
         "Python with the torch of genesis-worker (GENESIS_PYTHON; default python3)"},
        {"config", "", "FILE", "The settings file of the daemon"},
        {"data-dir", "", "DIR", "Its data folder"},
        {"compiled-dir", "", "DIR", "Where to (default: compiled in the data folder)"}},
       &RunCompile},
      {"context",
       "[CONTEXT]",
       0,
       1,
       "List the stored daemons, or use one; with --server and other options, store it first",
       {},
       &RunContext},
      {"completion",
       "bash|zsh|fish",
       1,
       1,
       "Print the completion of a shell; source <(genesisctl completion bash)",
       {},
       &RunCompletion},
      {"token",
       "NAME viewer|submitter|admin|worker",
       2,
       2,
       "Make a token for a viewer, submitter, admin or worker",
       {},
       &RunToken},
  };
  return table;
}

const std::vector<OptionRow>& GlobalOptions() {
  static const auto& options = *new std::vector<OptionRow>{
      {"server", "", "HOST:PORT",
       "The daemon, or unix:PATH (GENESIS_SERVER; default 127.0.0.1:50051)"},
      {"context", "", "CONTEXT", "The daemon that genesisctl context has stored under this name"},
      {"token-file", "", "FILE",
       "The token to call with (GENESIS_TOKEN_FILE, or itself in "
       "GENESIS_TOKEN)"},
      {"tls-ca", "", "FILE",
       "Speak TLS with a daemon whose certificate this authority has signed "
       "(GENESIS_TLS_CA)"},
      {"tls-cert", "", "FILE", "Certificate to call with (GENESIS_TLS_CERT)"},
      {"tls-key", "", "FILE", "Its private key (GENESIS_TLS_KEY)"},
      {"output", "o", "table|json|yaml", "Default table"},
      {"help", "h", "", "Print this, and exit"},
      {"version", "", "", "Print the version, and exit"},
  };
  return options;
}

const CommandRow* FindCommand(const std::string& name) {
  for (const CommandRow& command : CommandTable()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string HelpText(const std::string& command) {
  const CommandRow* row = FindCommand(command);
  if (row == nullptr) return OverallHelp();
  std::string text = absl::StrCat("Usage: genesisctl ", CommandWithOperands(*row),
                                  " [OPTION]...\n\n", row->summary, ".\n\nOptions:\n");
  for (const OptionRow& option : row->options) text += OptionHelp(option);
  for (const OptionRow& option : GlobalOptions()) text += OptionHelp(option);
  return text;
}

}  // namespace genesis::cli
