// genesisctl: the daemon's command line. Its commands are in cli/commands/command_table.cc.
#include <grpcpp/grpcpp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "base/environment.h"
#include "base/version.h"
#include "cli/commands/arguments.h"
#include "cli/commands/command_table.h"
#include "cli/session.h"

namespace genesis::cli {
namespace {

int TerminalWidth() {
  winsize size = {};
  constexpr int kUsual = 80;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

ExitCode Connect(const Arguments& arguments) {
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
                  .terminal = isatty(STDOUT_FILENO) == 1,
                  .width = TerminalWidth(),
                  .now = &absl::Now,
                  .interrupt = interrupt};
  return FindCommand(arguments.command)->run(arguments, session);
}

ExitCode Run(const std::vector<std::string>& args) {
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
  return Connect(arguments);
}

}  // namespace
}  // namespace genesis::cli

int main(int argc, char** argv) {
  return genesis::ToInt(genesis::cli::Run(std::vector<std::string>(argv + 1, argv + argc)));
}
