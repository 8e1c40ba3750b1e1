#include "cli/command_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"

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
    constexpr size_t kColumn = 20;
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
      {"train",
       "",
       0,
       0,
       "Submit the job that a job file describes",
       {{"file", "f", "FILE", "The job file; - reads it from standard input (required)"},
        {"job-id", "", "ID", "Name of the job; makes the call repeatable (default: generated)"},
        {"watch", "", "", "Follow the job until it ends"},
        {"validate-only", "", "", "Check the job file with the daemon and submit nothing"}},
       &RunTrain},
      {"jobs",
       "",
       0,
       0,
       "List jobs, newest first",
       {{"state", "", "STATE", "Only jobs in this state, such as RUNNING; may be repeated"}},
       &RunJobs},
      {"job", "ID", 1, 1, "Show one job", {}, &RunJob},
      {"watch",
       "ID",
       1,
       1,
       "Follow a job until it ends; Ctrl-C ends the watch, not the job",
       {},
       &RunWatch},
      {"cancel", "ID", 1, 1, "Stop a job after a checkpoint", {}, &RunCancel},
      {"checkpoint", "ID", 1, 1, "Write a checkpoint of a running job now", {}, &RunCheckpoint},
      {"checkpoints",
       "[ID]",
       0,
       1,
       "List checkpoints of all jobs or one, newest first",
       {},
       &RunCheckpoints},
      {"stats", "", 0, 0, "Show the counters of all jobs, and the workers", {}, &RunStats},
      {"info", "", 0, 0, "Show version, state and settings of the daemon", {}, &RunInfo},
  };
  return table;
}

const std::vector<OptionRow>& GlobalOptions() {
  static const auto& options = *new std::vector<OptionRow>{
      {"server", "", "HOST:PORT", "The daemon (GENESIS_SERVER; default 127.0.0.1:50051)"},
      {"output", "o", "FORMAT", "table, json or yaml (default table)"},
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
