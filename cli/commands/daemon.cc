// The `stats`, `info`, `open`, `backup` commands.
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/commands.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

using training::v1::GetServerInfoResponse;
using training::v1::StatsResponse;

std::string YesNo(bool value) { return value ? "yes" : "no"; }

std::string StatsText(const StatsResponse& stats) {
  // Sorted, because the order of a protobuf map is unspecified.
  const std::map<std::string, int64_t> states(stats.jobs_by_state().begin(),
                                              stats.jobs_by_state().end());
  const std::string jobs = absl::StrJoin(states, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, Printable(entry.first), " ", entry.second);
  });
  return FormatPairs({
      {"reduced precision", stats.fp16_enabled_runtime() ? "in use" : "not in use"},
      {"overflow rate", absl::StrFormat("%.2f%%", 100 * stats.overflow_rate())},
      {"training steps", absl::StrCat(stats.training_steps())},
      {"loss scale", stats.has_current_scale() ? FormatFigure(stats.current_scale()) : "none"},
      {"samples", absl::StrCat(stats.samples())},
      {"jobs", jobs.empty() ? "none" : jobs},
      {"workers", absl::StrCat(stats.busy_workers(), " busy, ", stats.warm_workers(), " warm, ",
                               stats.slots(), stats.slots() == 1 ? " slot" : " slots")},
  });
}

std::string InfoText(const GetServerInfoResponse& info) {
  return FormatPairs({
      {"version", Printable(info.version())},
      {"started", FormatTimestamp(info.start_time())},
      {"ready", YesNo(info.ready())},
      {"reduced precision", Printable(info.reduced_precision_reason())},
      {"data folder", Printable(info.data_dir())},
      {"deployment", Printable(info.deployment())},
      {"dashboard", Printable(info.http_address())},
  });
}

// Returns an HTTP address that works from here: the host of `server` replaces a wildcard address.
std::string ReachedAddress(const std::string& http_address, const std::string& server) {
  const std::string host =
      absl::StartsWith(server, "unix:") ? "localhost" : server.substr(0, server.rfind(':'));
  return absl::StrReplaceAll(http_address, {{"//0.0.0.0:", absl::StrCat("//", host, ":")},
                                            {"//[::]:", absl::StrCat("//", host, ":")}});
}

}  // namespace

bool PrintMessage(const google::protobuf::Message& message, Session& session, bool compact) {
  switch (session.output) {
    case OutputFormat::kTable:
      return false;
    case OutputFormat::kYaml:
      session.out << ToYaml(message);
      return true;
    case OutputFormat::kJson:
      session.out << ToJson(message, compact);
      return true;
  }
  return false;
}

ExitCode RunStats(const Arguments&, Session& session) {
  StatsResponse response;
  const grpc::Status status = Call(&Service::Stats, {}, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) session.out << StatsText(response);
  return ExitCode::kOk;
}

ExitCode RunBackup(const Arguments&, Session& session) {
  // The daemon responds when the copy is on disk, which takes long for a large store.
  constexpr absl::Duration kBackupTimeout = absl::Seconds(600);
  grpc::ClientContext context;
  SetDeadline(context, kBackupTimeout);
  training::v1::BackupStoreResponse response;
  const grpc::Status status = session.service.BackupStore(&context, {}, &response);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) {
    session.out << "backup " << Printable(response.path()) << " ("
                << FormatBytes(response.size_bytes()) << ")\n";
  }
  return ExitCode::kOk;
}

ExitCode RunInfo(const Arguments&, Session& session) {
  GetServerInfoResponse response;
  const grpc::Status status = Call(&Service::GetServerInfo, {}, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) session.out << InfoText(response);
  return ExitCode::kOk;
}

ExitCode RunOpen(const Arguments& arguments, Session& session) {
  GetServerInfoResponse info;
  grpc::Status status = Call(&Service::GetServerInfo, {}, info, session);
  if (!status.ok()) return ReportError(status, session);
  training::v1::CreateLoginCodeResponse login;
  status = Call(&Service::CreateLoginCode, {}, login, session);
  if (!status.ok()) return ReportError(status, session);
  const std::string job =
      arguments.operands.empty() ? "" : absl::StrCat("jobs/", arguments.operands.front());
  const std::string query = login.code().empty() ? "" : absl::StrCat("?login=", login.code());
  // A browser does not send the part of a URL after '#' to the server.
  session.out << Printable(ReachedAddress(info.http_address(), session.server)) << "/#/"
              << Printable(job) << query << "\n";
  return ExitCode::kOk;
}

}  // namespace genesis::cli
