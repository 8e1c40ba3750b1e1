#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "cli/session.h"
#include "client/contexts.h"

namespace genesis::cli {

struct OptionRow;

// The command line of genesisctl, parsed and checked against the command table.
struct Arguments {
  // From --server, --token-file, --tls-ca, ...; otherwise from the context, if one is used, or from
  // GENESIS_SERVER, GENESIS_TOKEN, ....
  DaemonAddress daemon;
  OutputFormat output = OutputFormat::kTable;
  std::string command;                // Empty if none was given.
  std::vector<std::string> operands;  // Arguments of the command, such as a job ID.
  // Keyed by long name without dashes: "state" -> {"RUNNING", "QUEUED"}; a switch has one "".
  std::map<std::string, std::vector<std::string>> options;
  bool show_help = false;
  bool show_version = false;
  std::vector<std::string> errors;  // If not empty, the other members are invalid.

  bool Has(const std::string& option) const { return options.contains(option); }
  // Returns the last value of `option`; "" if it was not given.
  std::string Value(const std::string& option) const;
  // Returns all values of `option`.
  std::vector<std::string> Values(const std::string& option) const;
};

// Returns the name of the option for a member of the address, such as "token-file".
std::string OptionOf(const AddressMember& member);

// Returns the option for `flag`, such as "--watch" or "-f": of `command`, of all commands or,
// because options may precede the command, of another one; nullptr if there is none.
const OptionRow* FindOption(const std::string& flag, const std::string& command);

// Parses `args`, argv without the program name. Options may precede or follow the command.
Arguments ParseArguments(const std::vector<std::string>& args, const Environment& environment);

}  // namespace genesis::cli
