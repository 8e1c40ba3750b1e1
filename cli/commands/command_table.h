#pragma once

#include <string>
#include <vector>

#include "base/exit_code.h"
#include "cli/commands/arguments.h"
#include "cli/session.h"

namespace genesis::cli {

// One option. Long names are unique over all commands, so that an option may precede its command.
struct OptionRow {
  const char* name;        // "job-id" for --job-id.
  const char* short_name;  // "f" for -f; "" for none.
  const char* value;       // "FILE" in help; "" for a switch.
  const char* help;
};

// One command: what --help prints, what ParseArguments accepts, and what runs.
struct CommandRow {
  const char* name;
  const char* operands;  // "ID", "[ID]" or "" in help.
  size_t min_operands;
  size_t max_operands;
  const char* summary;
  std::vector<OptionRow> options;
  ExitCode (*run)(const Arguments& arguments, Session& session);
};

const std::vector<CommandRow>& CommandTable();
const std::vector<OptionRow>& GlobalOptions();

// Returns nullptr if there is no such command.
const CommandRow* FindCommand(const std::string& name);

// Returns the help of `command`, or of all commands if it is empty.
std::string HelpText(const std::string& command);

}  // namespace genesis::cli
