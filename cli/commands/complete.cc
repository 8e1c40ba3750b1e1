// The `completion` command, and what the shells call to complete a word.
#include "cli/commands/complete.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "cli/commands/command_table.h"
#include "cli/text.h"
#include "client/contexts.h"

namespace genesis::cli {
namespace {

// Each script calls genesisctl for candidates, so it matches the installed version. The line
// ":files" makes it complete file names.
constexpr char kBash[] = R"(# bash completion for genesisctl
_genesisctl() {
  local word=${COMP_WORDS[COMP_CWORD]} found
  mapfile -t found < <(genesisctl __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [ "${found[0]}" = ':files' ]; then mapfile -t found < <(compgen -f -- "$word"); fi
  COMPREPLY=("${found[@]}")
}
complete -o filenames -F _genesisctl genesisctl
)";

constexpr char kZsh[] = R"(#compdef genesisctl
_genesisctl() {
  local -a found
  found=("${(@f)$(genesisctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ $found[1] == ':files' ]]; then _files; else compadd -a found; fi
}
if [[ $funcstack[1] == _genesisctl ]]; then _genesisctl; else compdef _genesisctl genesisctl; fi
)";

constexpr char kFish[] = R"(# fish completion for genesisctl
function __genesisctl_complete
  set -l words (commandline -opc)
  set -l found (genesisctl __complete $words[2..-1] (commandline -ct) 2>/dev/null)
  if test "$found[1]" = ':files'
    __fish_complete_path (commandline -ct)
  else
    printf '%s\n' $found
  end
end
complete -c genesisctl -f -a '(__genesisctl_complete)'
)";

const std::map<std::string, const char*>& Scripts() {
  static const auto& scripts =
      *new std::map<std::string, const char*>{{"bash", kBash}, {"fish", kFish}, {"zsh", kZsh}};
  return scripts;
}

// Adds the candidates for a placeholder of the help text, such as FILE, JOB or table|json|yaml.
void AddPlaceholder(const std::string& placeholder, Completion& completion) {
  if (placeholder == "FILE" || placeholder == "DIR") {
    completion.files = true;
  } else if (placeholder == "JOB" || placeholder == "SWEEP" || placeholder == "CHECKPOINT" ||
             placeholder == "WORKER") {
    completion.identifiers = placeholder;
  } else if (placeholder == "STATE") {
    const google::protobuf::EnumDescriptor& states = *training::v1::JobState_descriptor();
    for (int i = 1; i < states.value_count(); ++i) {
      completion.candidates.push_back(
          ShortEnumName(static_cast<training::v1::JobState>(states.value(i)->number())));
    }
  } else if (placeholder == "KIND") {
    const google::protobuf::OneofDescriptor& kinds =
        *training::v1::JobEvent::descriptor()->oneof_decl(0);
    for (int i = 0; i < kinds.field_count(); ++i) {
      completion.candidates.push_back(kinds.field(i)->name());
    }
  } else if (placeholder == "CONTEXT") {
    const absl::StatusOr<Contexts> contexts = ReadContexts(ContextsFile(&ProcessEnvironment));
    if (!contexts.ok()) return;
    for (const auto& [name, address] : contexts->daemons) completion.candidates.push_back(name);
  } else if (absl::StrContains(placeholder, '|')) {
    completion.candidates = absl::StrSplit(placeholder, '|');
  }
}

// Returns the placeholder of an operand: "JOB" of "JOB JOB...", "show|reload" of "[show|reload]".
std::string Placeholder(const CommandRow& command, size_t operand) {
  std::vector<std::string> placeholders = absl::StrSplit(command.operands, ' ');
  if (operand >= command.max_operands || placeholders.empty()) return "";
  std::string text = placeholders[std::min(operand, placeholders.size() - 1)];
  for (const char* mark : {"[", "]", "..."}) {
    if (const size_t at = text.find(mark); at != std::string::npos) text.erase(at, strlen(mark));
  }
  return text;
}

void AddOptions(const std::vector<OptionRow>& options, Completion& completion) {
  for (const OptionRow& option : options) {
    completion.candidates.push_back(absl::StrCat("--", option.name));
  }
}

// Returns the daemon's identifiers of a kind: at most 1,000, newest first, or all workers.
std::vector<std::string> Identifiers(const std::string& kind, const std::string& beginning,
                                     Session& session) {
  constexpr absl::Duration kPatience = absl::Seconds(1);
  constexpr int kMaxIds = 1000;
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  std::vector<std::string> ids;
  if (kind == "JOB") {
    training::v1::ListJobsRequest request;
    request.set_page_size(kMaxIds);
    request.set_id_prefix(beginning);
    training::v1::ListJobsResponse response;
    session.service.ListJobs(&context, request, &response);
    for (const auto& job : response.jobs()) ids.push_back(job.id());
  } else if (kind == "SWEEP") {
    training::v1::ListSweepsRequest request;
    request.set_page_size(kMaxIds);
    training::v1::ListSweepsResponse response;
    session.service.ListSweeps(&context, request, &response);
    for (const auto& sweep : response.sweeps()) ids.push_back(sweep.id());
  } else if (kind == "CHECKPOINT") {
    training::v1::ListCheckpointsRequest request;
    request.set_page_size(kMaxIds);
    training::v1::ListCheckpointsResponse response;
    session.service.ListCheckpoints(&context, request, &response);
    for (const auto& checkpoint : response.checkpoints()) ids.push_back(checkpoint.id());
  } else {
    training::v1::ListWorkersResponse response;
    session.service.ListWorkers(&context, {}, &response);
    for (const auto& worker : response.workers()) ids.push_back(worker.id());
  }
  return ids;
}

}  // namespace

Completion Complete(const std::vector<std::string>& words) {
  Completion completion;
  const CommandRow* command = nullptr;
  size_t operands = 0;
  const OptionRow* awaits = nullptr;  // Option that takes the next word as its value.
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (awaits != nullptr) {
      awaits = nullptr;
    } else if (word.size() > 1 && word[0] == '-') {
      const OptionRow* option = FindOption(word, command == nullptr ? "" : command->name);
      if (option != nullptr && option->value[0] != '\0') awaits = option;
    } else if (command == nullptr) {
      command = FindCommand(word);
    } else {
      ++operands;
    }
  }
  const std::string& last = words.back();
  if (awaits != nullptr) {
    AddPlaceholder(awaits->value, completion);
  } else if (absl::StartsWith(last, "-")) {
    if (command != nullptr) AddOptions(command->options, completion);
    AddOptions(GlobalOptions(), completion);
  } else if (command == nullptr) {
    for (const CommandRow& each : CommandTable()) completion.candidates.push_back(each.name);
  } else {
    AddPlaceholder(Placeholder(*command, operands), completion);
  }
  return completion;
}

void PrintCompletion(const std::vector<std::string>& words, Session& session) {
  Completion completion = Complete(words);
  if (completion.files) session.out << ":files\n";
  if (!completion.identifiers.empty()) {
    completion.candidates = Identifiers(completion.identifiers, words.back(), session);
  }
  for (const std::string& candidate : completion.candidates) {
    if (absl::StartsWith(candidate, words.back())) session.out << Printable(candidate) << "\n";
  }
}

ExitCode RunCompletion(const Arguments& arguments, Session& session) {
  const std::string& shell = arguments.operands.front();
  const auto script = Scripts().find(shell);
  if (script == Scripts().end()) {
    return ReportUsage(absl::StrCat(QuoteValue(shell), ": accepted: bash, zsh or fish"), session);
  }
  session.out << script->second;
  return ExitCode::kOk;
}

}  // namespace genesis::cli
