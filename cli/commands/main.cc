// genesisctl: the daemon's command line. Its commands are in cli/commands/command_table.cc.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <iostream>

#include "base/environment.h"
#include "base/version.h"
#include "cli/commands/arguments.h"
#include "cli/commands/command_table.h"
#include "cli/commands/complete.h"
#include "cli/screen.h"
#include "cli/session.h"

namespace genesis::cli {
namespace {

ExitCode Connect(const Arguments& arguments, const std::function<ExitCode(Session&)>& run) {
  // Created before gRPC starts its threads, because these must not receive SIGINT.
  static Interrupt interrupt;
  StartSignalThread(interrupt);
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel(arguments.daemon);
  if (!channel.ok()) {
    std::cerr << "genesisctl: " << channel.status().message() << "\n";
    return ExitCode::kUsage;
  }
  const auto service = training::v1::TrainingService::NewStub(*channel);
  Session session{.service = *service,
                  .server = arguments.daemon.server,
                  .output = arguments.output,
                  .in = std::cin,
                  .out = std::cout,
                  .err = std::cerr,
                  .terminal = isatty(STDOUT_FILENO) == 1 &&
                              ProcessEnvironment("TERM").value_or("dumb") != "dumb",
                  .width = CurrentTerminalSize().columns,
                  .now = &absl::Now,
                  .interrupt = interrupt};
  const ExitCode code = run(session);
  // A flush fails if the disk is full. If the reader of a pipe exits, SIGPIPE ends genesisctl.
  if (!std::cout.flush()) {
    std::cerr << "genesisctl: the output cannot be written completely: " << std::strerror(errno)
              << "; free space there or write it elsewhere\n";
    return code == ExitCode::kOk ? ExitCode::kFailure : code;
  }
  return code;
}

// Completes the last word after __complete. The line is not finished, so errors in it are ignored.
ExitCode Complete(const std::vector<std::string>& args) {
  const std::vector<std::string> words(args.begin() + 1, args.end());
  if (words.empty()) return ExitCode::kUsage;
  const Arguments arguments = ParseArguments({words.begin(), words.end() - 1}, &ProcessEnvironment);
  return Connect(arguments, [&words](Session& session) {
    PrintCompletion(words, session);
    return ExitCode::kOk;
  });
}

ExitCode Run(const std::vector<std::string>& args) {
  if (!args.empty() && args.front() == kCompleteCommand) return Complete(args);
  const Arguments arguments = ParseArguments(args, &ProcessEnvironment);
  for (const std::string& error : arguments.errors) std::cerr << "genesisctl: " << error << "\n";
  if (!arguments.errors.empty()) return ExitCode::kUsage;
  if (arguments.show_version) {
    std::cout << "genesisctl " << kVersion << "\n";
    return ExitCode::kOk;
  }
  if (arguments.show_help) {
    std::cout << HelpText(arguments.command);
    return ExitCode::kOk;
  }
  return Connect(arguments, [&arguments](Session& session) {
    return FindCommand(arguments.command)->run(arguments, session);
  });
}

}  // namespace
}  // namespace genesis::cli

int main(int argc, char** argv) {
  return genesis::ToInt(genesis::cli::Run(std::vector<std::string>(argv + 1, argv + argc)));
}
