#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <limits>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "base/exit_code.h"
#include "cli/interrupt.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

namespace genesis::cli {

enum class OutputFormat { kTable, kJson, kYaml };

// The service, streams, terminal and clock of a command. Owned by main or a test; for one thread.
struct Session {
  training::v1::TrainingService::StubInterface& service;
  std::string server;  // Address, for messages.
  OutputFormat output = OutputFormat::kTable;
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // True if `out` is a terminal.
  int width = 80;         // Columns of the terminal.
  // Returns the maximum width of tables; unlimited without a terminal, because scripts read them.
  size_t table_width() const {
    return terminal ? static_cast<size_t>(width) : std::numeric_limits<size_t>::max();
  }
  std::function<absl::Time()> now;
  Interrupt& interrupt;
};

// Sets a deadline for the call that uses `context`.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);
inline constexpr absl::Duration kCallTimeout = absl::Seconds(10);

// Calls a unary method of the service, such as &Service::GetJob, within kCallTimeout.
using Service = training::v1::TrainingService::StubInterface;
template <typename Request, typename Response>
grpc::Status Call(grpc::Status (Service::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response& response, Session& session) {
  grpc::ClientContext context;
  SetDeadline(context, kCallTimeout);
  return (session.service.*method)(&context, request, &response);
}

// Prints the error of a call and its cure. Returns kUnavailable if no daemon responded or the
// daemon returned UNAVAILABLE, otherwise kFailure.
ExitCode ReportError(const grpc::Status& status, Session& session);

// Prints "genesisctl: message" to err and returns kUsage.
ExitCode ReportUsage(const std::string& message, Session& session);

// Prints "genesisctl: fault" to err, for an error on the client's side. Returns kFailure.
ExitCode ReportFault(const std::string& fault, Session& session);

// Returns the name of the code, e.g. "NOT_FOUND".
std::string CodeName(grpc::StatusCode code);

}  // namespace genesis::cli
