#include "cli/session.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

// Returns why the connection failed or broke, from gRPC's message; "" if the daemon
// itself returned UNAVAILABLE.
std::string ConnectionFault(const std::string& message) {
  if (absl::StrContains(message, "Connection refused")) return "connection refused";
  if (absl::StrContains(message, "DNS resolution failed")) return "the host's name is not known";
  if (absl::StrContains(message, "failed to connect")) return Printable(message);
  // The connection broke during the call, because the daemon exited or was killed.
  if (absl::StrContains(message, "Socket closed")) return "the connection was closed";
  if (absl::StrContains(message, "Connection reset")) return "the connection was reset";
  return "";
}

}  // namespace

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

ExitCode ReportError(const grpc::Status& status, Session& session) {
  const std::string& message = status.error_message();
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    session.err << "genesisctl: the daemon at " << session.server
                << " did not answer in time; check that it runs and is not overloaded, then repeat "
                   "the command\n";
    return ExitCode::kUnavailable;
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    const std::string fault = ConnectionFault(message);
    if (fault.empty()) {
      session.err << "genesisctl: UNAVAILABLE: " << Printable(message) << "\n";
    } else {
      session.err << "genesisctl: no daemon answers at " << session.server << " (" << fault
                  << "); start one with genesisd, or name another with --server\n";
    }
    return ExitCode::kUnavailable;
  }
  // The message has one error per line.
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  session.err << "genesisctl: " << CodeName(status.error_code()) << ":";
  for (const std::string& line : lines) {
    session.err << (lines.size() == 1 ? " " : "\n  ") << Printable(line);
  }
  session.err << "\n";
  return ExitCode::kFailure;
}

ExitCode ReportUsage(const std::string& message, Session& session) {
  session.err << "genesisctl: " << message << "\n";
  return ExitCode::kUsage;
}

std::string CodeName(grpc::StatusCode code) {
  // Codes of gRPC and Abseil have equal numbers, but only Abseil has names.
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

ExitCode ReportFault(const std::string& fault, Session& session) {
  session.err << "genesisctl: " << fault << "\n";
  return ExitCode::kFailure;
}

}  // namespace genesis::cli
