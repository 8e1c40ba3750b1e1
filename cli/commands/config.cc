// The `config`, `token` commands.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/settings/role.h"
#include "config/settings/token.h"

namespace genesis::cli {
namespace {

using training::v1::SettingValue;

std::string SettingsText(const google::protobuf::RepeatedPtrField<SettingValue>& settings,
                         size_t max_width) {
  Table table({"SETTING", "VALUE", "SOURCE", "RELOAD"});
  for (const SettingValue& each : settings) {
    table.AddRow({Printable(each.key()), Printable(each.value()), Printable(each.source()),
                  each.reloadable() ? "yes" : "no"});
  }
  return table.ToString(max_width);
}

ExitCode Show(Session& session) {
  training::v1::GetConfigResponse response;
  const grpc::Status status = Call(&Service::GetConfig, {}, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(response, session)) return ExitCode::kOk;
  session.out << SettingsText(response.settings(), session.table_width());
  for (const std::string& warning : response.warnings()) {
    session.out << "warning: " << Printable(warning) << "\n";
  }
  return ExitCode::kOk;
}

ExitCode Reload(bool validate_only, Session& session) {
  training::v1::ReloadConfigRequest request;
  request.set_validate_only(validate_only);
  training::v1::ReloadConfigResponse response;
  const grpc::Status status = Call(&Service::ReloadConfig, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(response, session)) return ExitCode::kOk;
  if (response.changed().empty()) {
    session.out << (validate_only ? "valid; no setting would change\n"
                                  : "reloaded; no setting changed\n");
    return ExitCode::kOk;
  }
  session.out << (validate_only ? "valid; a reload would change:\n" : "reloaded; changed:\n")
              << SettingsText(response.changed(), session.table_width());
  return ExitCode::kOk;
}

}  // namespace

ExitCode RunConfig(const Arguments& arguments, Session& session) {
  const std::string& action = arguments.operands.front();
  if (action == "show") return Show(session);
  if (action == "reload") return Reload(/*validate_only=*/false, session);
  if (action == "validate") return Reload(/*validate_only=*/true, session);
  return ReportUsage(
      absl::StrCat("config: ", QuoteValue(action), "; accepted: show, reload or validate"),
      session);
}

ExitCode RunToken(const Arguments& arguments, Session& session) {
  const std::string& name = arguments.operands[0];
  const std::string& role = arguments.operands[1];
  if (!IsCallerName(name)) {
    return ReportUsage(
        absl::StrCat("token: NAME is ", QuoteValue(name), "; accepted: ", kCallerNameRule),
        session);
  }
  if (!RoleOf(role).has_value()) {
    return ReportUsage(
        absl::StrCat("token: ROLE is ", QuoteValue(role), "; accepted: ", kRoleNames), session);
  }
  const std::string token = NewToken();
  const std::string line = absl::StrCat(name, " ", role, " ", FormatTokenHash(HashToken(token)));
  if (session.output != OutputFormat::kTable) {
    // Names and roles have no characters that JSON must escape, and JSON is valid YAML.
    session.out << "{\"token\": \"" << token << "\", \"line\": \"" << line << "\"}\n";
    return ExitCode::kOk;
  }
  session.out << "The token, for " << name << "; it is shown only now:\n\n  " << token
              << "\n\nThe line for the file that auth.tokens_file names (mode 0600 or 0640):\n\n  "
              << line << "\n\n";
  return ExitCode::kOk;
}

}  // namespace genesis::cli
