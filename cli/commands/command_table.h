#pragma once

#include <string>
#include <vector>

#include "base/exit_code.h"
#include "cli/commands/arguments.h"
#include "cli/session.h"

namespace genesis::cli {

// An option. An option may precede the command, so equal names must agree on taking a value.
struct OptionRow {
  const char* name;        // E.g. "job-id" for --job-id.
  const char* short_name;  // E.g. "f" for -f; "" for none.
  const char* value;       // E.g. "FILE" in help; "" for a switch.
  const char* help;
};

// A command: what --help prints, what ParseArguments accepts, and the function that runs it.
struct CommandRow {
  const char* name;
  const char* operands;  // E.g. "ID", "[ID]" or "" in help.
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

// Returns the help text of `command`, or of all commands if it is empty.
std::string HelpText(const std::string& command);

}  // namespace genesis::cli
