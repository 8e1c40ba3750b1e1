#pragma once

#include <functional>
#include <istream>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "base/exit_code.h"
#include "cli/interrupt.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

namespace genesis::cli {

enum class OutputFormat { kTable, kJson, kYaml };

// The environment of a command. Owned by main or a test; used by one thread.
struct Session {
  training::v1::TrainingService::StubInterface& service;
  std::string server;  // Address shown in messages.
  OutputFormat output = OutputFormat::kTable;
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  // `out` is a terminal.
  int width = 80;         // Columns of the terminal.
  std::function<absl::Time()> now;
  Interrupt& interrupt;
};

// Sets a deadline for the call that uses `context`.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);
inline constexpr absl::Duration kCallTimeout = absl::Seconds(10);

// Prints the error of a call and its cure. Returns the exit code: kUnavailable if no daemon
// responded, otherwise kFailure.
ExitCode ReportError(const grpc::Status& status, Session& session);

// Prints "genesisctl: message" to err and returns kUsage.
ExitCode ReportUsage(const std::string& message, Session& session);

// Prints "genesisctl: fault" to err, for an error on this side, and returns kFailure.
ExitCode ReportFault(const std::string& fault, Session& session);

// Returns "NOT_FOUND" and the like.
std::string CodeName(grpc::StatusCode code);

}  // namespace genesis::cli
