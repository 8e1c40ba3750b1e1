// The `doctor` command: finds out why the daemon does not start or work as expected.
#include <dlfcn.h>
#include <google/protobuf/struct.pb.h>
#include <sys/timex.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/program_dir.h"
#include "cli/commands/commands.h"
#include "cli/doctor/checks.h"
#include "cli/text.h"

extern char** environ;

namespace genesis::cli {
namespace {

constexpr char kServiceEnvironment[] = "/etc/genesis/environment";

bool CanLoad(const char* library) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

bool ClockIsSynchronised() {
  timex state = {};
  return adjtimex(&state) != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

using Variables = std::map<std::string, std::string>;

Variables OwnVariables() {
  Variables variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

// Reads an EnvironmentFile= as systemd does (systemd.exec(5)), except escapes. The last value of a
// variable wins. Returns false if there is no such file.
bool AddFile(const std::string& path, Variables& variables) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    absl::StripAsciiWhitespace(&line);
    const size_t equals = line.find('=');
    if (line.empty() || line[0] == '#' || line[0] == ';' || equals == std::string::npos) continue;
    std::string value = line.substr(equals + 1);
    const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                        value.front() == value.back();
    variables[line.substr(0, equals)] = quoted ? value.substr(1, value.size() - 2) : value;
  }
  return file.eof();
}

Findings Examine(const LoadedSettings& loaded, const Variables& variables, Session& session) {
  const Host host{.can_load = &CanLoad, .clock_is_synchronised = &ClockIsSynchronised};
  std::vector<std::string> names;
  for (const auto& [name, value] : variables) names.push_back(name);
  Findings all;
  for (const Findings& part :
       {CheckSettings(loaded, names), CheckGpu(host), CheckWorker(loaded.settings),
        CheckStorage(loaded.settings), CheckPorts(loaded.settings),
        CheckSystem(loaded.settings, host), CheckDaemon(session.service, session.server)}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

google::protobuf::Struct ToStruct(const Findings& findings, int problems) {
  google::protobuf::Struct result;
  auto& fields = *result.mutable_fields();
  fields["problems"].set_number_value(problems);
  google::protobuf::ListValue& list = *fields["findings"].mutable_list_value();
  for (const Finding& each : findings) {
    auto& row = *list.add_values()->mutable_struct_value()->mutable_fields();
    row["level"].set_string_value(LevelName(each.level));
    row["about"].set_string_value(each.about);
    row["text"].set_string_value(each.text);
    row["fix"].set_string_value(each.fix);
  }
  return result;
}

void Print(const Findings& findings, int problems, int notes, Session& session) {
  for (const Finding& each : findings) {
    std::string level = LevelName(each.level);
    level.resize(9, ' ');
    std::string about = each.about;
    about.resize(13, ' ');
    session.out << level << about << Printable(each.text) << "\n";
    if (!each.fix.empty()) session.out << std::string(22, ' ') << "-> " << each.fix << "\n";
  }
  session.out << "\n"
              << problems << (problems == 1 ? " problem, " : " problems, ") << notes
              << (notes == 1 ? " note\n" : " notes\n");
}

}  // namespace

ExitCode RunDoctor(const Arguments& arguments, Session& session) {
  Variables variables = OwnVariables();
  const std::string file = arguments.Value("environment-file");
  if (!file.empty() && !AddFile(file, variables)) {
    return ReportUsage(absl::StrCat("doctor: --environment-file ", QuoteValue(file),
                                    " cannot be read; give the file of the unit, ",
                                    kServiceEnvironment, " when installed as a service"),
                       session);
  }
  std::vector<std::string> flags;
  for (const char* name : {"config", "data-dir"}) {
    if (arguments.Has(name)) flags.push_back(absl::StrCat("--", name, "=", arguments.Value(name)));
  }
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  Findings findings = Examine(LoadSettings(flags, environment, ProgramDir()), variables, session);
  if (file.empty() && std::filesystem::exists(kServiceEnvironment)) {
    findings.push_back(Note("environment", absl::StrCat(kServiceEnvironment, " was not read"),
                            absl::StrCat("--environment-file ", kServiceEnvironment,
                                         " looks with the values that the service has")));
  }
  int problems = 0;
  int notes = 0;
  for (const Finding& each : findings) {
    problems += each.level == Finding::Level::kProblem ? 1 : 0;
    notes += each.level == Finding::Level::kNote ? 1 : 0;
  }
  if (!PrintMessage(ToStruct(findings, problems), session))
    Print(findings, problems, notes, session);
  return problems == 0 ? ExitCode::kOk : ExitCode::kFailure;
}

}  // namespace genesis::cli
