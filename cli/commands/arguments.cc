#include "cli/commands/arguments.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/text/field_error.h"
#include "base/text/nearest.h"
#include "cli/commands/command_table.h"
#include "client/contexts.h"
#include "config/settings/listen_address.h"

namespace genesis::cli {
namespace {

constexpr char kServerVariable[] = "GENESIS_SERVER";

const OptionRow* FindIn(const std::vector<OptionRow>& options, const std::string& flag) {
  for (const OptionRow& option : options) {
    if (flag == absl::StrCat("--", option.name)) return &option;
    if (option.short_name[0] != '\0' && flag == absl::StrCat("-", option.short_name)) {
      return &option;
    }
  }
  return nullptr;
}

std::string UnknownOption(const std::string& flag) {
  std::vector<std::string> flags;
  for (const OptionRow& option : GlobalOptions()) flags.push_back(absl::StrCat("--", option.name));
  for (const CommandRow& command : CommandTable()) {
    for (const OptionRow& option : command.options) {
      flags.push_back(absl::StrCat("--", option.name));
    }
  }
  const std::string nearest = Nearest(flag, flags);
  return absl::StrCat(
      flag, ": unknown option; ",
      nearest.empty() ? "see genesisctl --help" : absl::StrCat("did you mean ", nearest, "?"));
}

std::string UnknownCommand(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandRow& command : CommandTable()) names.push_back(command.name);
  const std::string nearest = Nearest(name, names);
  return absl::StrCat(QuoteValue(name), ": unknown command; ",
                      nearest.empty() ? absl::StrCat("accepted: ", absl::StrJoin(names, ", "))
                                      : absl::StrCat("did you mean ", nearest, "?"));
}

// Splits `args` into options and words; the first word is the command.
void Split(const std::vector<std::string>& args, Arguments& result) {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word.size() < 2 || word[0] != '-') {
      if (result.command.empty()) {
        result.command = word;
      } else {
        result.operands.push_back(word);
      }
      continue;
    }
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    const OptionRow* option = FindOption(flag, result.command);
    const bool has_value = equals != std::string::npos;
    if (option == nullptr) {
      result.errors.push_back(UnknownOption(flag));
    } else if (option->value[0] == '\0') {
      if (has_value) result.errors.push_back(flag + ": takes no value; write it alone");
      result.options[option->name] = {""};
    } else if (has_value) {
      result.options[option->name].push_back(word.substr(equals + 1));
    } else if (i + 1 < args.size() && !absl::StartsWith(args[i + 1], "--")) {
      result.options[option->name].push_back(args[++i]);
    } else {
      result.errors.push_back(
          absl::StrCat(flag, ": needs a value; write ", flag, " ", option->value));
    }
  }
}

void CheckCommand(Arguments& result) {
  const CommandRow* command = FindCommand(result.command);
  if (result.command.empty()) {
    result.errors.push_back("no command; see genesisctl --help");
  } else if (command == nullptr) {
    result.errors.push_back(UnknownCommand(result.command));
  }
  if (command == nullptr) return;
  for (const auto& [name, values] : result.options) {
    const std::string flag = absl::StrCat("--", name);
    if (FindIn(GlobalOptions(), flag) != nullptr || FindIn(command->options, flag) != nullptr) {
      continue;
    }
    result.errors.push_back(absl::StrCat(flag, ": no option of ", result.command,
                                         "; see genesisctl ", result.command, " --help"));
  }
  if (result.operands.size() < command->min_operands) {
    result.errors.push_back(absl::StrCat(result.command, ": needs ", command->operands,
                                         "; write genesisctl ", result.command, " ",
                                         command->operands));
  }
  for (size_t i = command->max_operands; i < result.operands.size(); ++i) {
    result.errors.push_back(absl::StrCat(QuoteValue(result.operands[i]),
                                         ": one word too many; see ", "genesisctl ", result.command,
                                         " --help"));
  }
}

void ReadOutput(Arguments& result) {
  if (!result.Has("output")) return;
  const std::string text = result.Value("output");
  if (text == "table") {
    result.output = OutputFormat::kTable;
  } else if (text == "json") {
    result.output = OutputFormat::kJson;
  } else if (text == "yaml") {
    result.output = OutputFormat::kYaml;
  } else {
    result.errors.push_back(
        absl::StrCat("--output is ", QuoteValue(text), "; accepted: table, json or yaml"));
  }
}

// Sets `result.daemon` to the context that --context names or, if no option or variable names a
// server, to the current one. Returns false if no context is used.
bool ReadContext(const Environment& environment, Arguments& result) {
  const bool named = result.Has("context");
  if (!named && (result.Has("server") || environment(kServerVariable).has_value())) return false;
  const std::string path = ContextsFile(environment);
  const absl::StatusOr<Contexts> contexts =
      path.empty() ? absl::StatusOr<Contexts>(Contexts()) : ReadContexts(path);
  if (!contexts.ok()) {
    result.errors.emplace_back(contexts.status().message());
    return true;
  }
  const std::string name = named ? result.Value("context") : contexts->current;
  if (!named && name.empty()) return false;
  const auto found = contexts->daemons.find(name);
  if (found == contexts->daemons.end()) {
    // The context command can fix a current context that does not exist.
    if (named || result.command != "context") {
      result.errors.push_back(UnknownContext(name, *contexts));
    }
    return true;
  }
  result.daemon = found->second;
  return true;
}

// Options override the context. A context replaces all variables, so that the token of one daemon
// is never sent to another.
void ReadDaemon(const Environment& environment, Arguments& result) {
  const bool context = ReadContext(environment, result);
  for (const AddressMember& member : kAddressMembers) {
    const std::string option = OptionOf(member);
    std::string& value = result.daemon.*member.value;
    if (result.Has(option)) {
      value = result.Value(option);
    } else if (!context) {
      const std::string variable = absl::StrCat("GENESIS_", absl::AsciiStrToUpper(member.name));
      value = environment(variable).value_or(value);
    }
  }
  if (!context) result.daemon.token = environment("GENESIS_TOKEN").value_or("");
  if (absl::StartsWith(result.daemon.server, "unix:/")) return;
  const std::optional<HostPort> address = ParseHostPort(result.daemon.server);
  if (!address.has_value() || address->port == 0) {
    const bool variable = !context && !result.Has("server");
    result.errors.push_back(absl::StrCat(
        variable ? kServerVariable : "--server", " is ", QuoteValue(result.daemon.server),
        "; accepted: host:port, such as 127.0.0.1:50051, or unix:/PATH"));
  }
}

}  // namespace

std::string OptionOf(const AddressMember& member) {
  return absl::StrReplaceAll(member.name, {{"_", "-"}});
}

const OptionRow* FindOption(const std::string& flag, const std::string& command) {
  if (const OptionRow* option = FindIn(GlobalOptions(), flag)) return option;
  const CommandRow* named = FindCommand(command);
  if (const OptionRow* option = named != nullptr ? FindIn(named->options, flag) : nullptr) {
    return option;
  }
  for (const CommandRow& each : CommandTable()) {
    if (const OptionRow* option = FindIn(each.options, flag)) return option;
  }
  return nullptr;
}

std::string Arguments::Value(const std::string& option) const {
  const auto found = options.find(option);
  return found == options.end() ? "" : found->second.back();
}

std::vector<std::string> Arguments::Values(const std::string& option) const {
  const auto found = options.find(option);
  return found == options.end() ? std::vector<std::string>() : found->second;
}

Arguments ParseArguments(const std::vector<std::string>& args, const Environment& environment) {
  Arguments result;
  Split(args, result);
  result.show_help = result.Has("help");
  result.show_version = result.Has("version");
  ReadOutput(result);
  ReadDaemon(environment, result);
  if (!result.show_version && !(result.show_help && result.command.empty())) CheckCommand(result);
  if (result.show_help && FindCommand(result.command) != nullptr) {
    // "genesisctl job --help" needs no ID, so errors are dropped.
    result.errors.clear();
  }
  return result;
}

}  // namespace genesis::cli
