// The `context` command.
#include <algorithm>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/table.h"
#include "cli/text.h"
#include "client/contexts.h"

namespace genesis::cli {
namespace {

std::string ContextsText(const Contexts& contexts, size_t max_width) {
  Table table({"", "CONTEXT", "SERVER", "TOKEN FILE", "TLS AUTHORITY"});
  for (const auto& [name, address] : contexts.daemons) {
    table.AddRow({name == contexts.current ? "*" : "", Printable(name), Printable(address.server),
                  Printable(address.token_file), Printable(address.tls_ca)});
  }
  return contexts.daemons.empty()
             ? "no contexts; write genesisctl context NAME --server HOST:PORT\n"
             : table.ToString(max_width);
}

// Returns the absolute form of a path, which does not depend on the current folder; "" for "".
std::string Absolute(const std::string& path) {
  return path.empty() ? "" : std::filesystem::absolute(path).lexically_normal().string();
}

// Returns true if an option of the connection is given. The context then stores the connection.
bool HasConnection(const Arguments& arguments) {
  return std::any_of(
      std::begin(kAddressMembers), std::end(kAddressMembers),
      [&arguments](const AddressMember& each) { return arguments.Has(OptionOf(each)); });
}

}  // namespace

ExitCode RunContext(const Arguments& arguments, Session& session) {
  const std::string path = ContextsFile(&ProcessEnvironment);
  if (path.empty()) {
    return ReportFault("HOME is not set, so there is no file of contexts; set it", session);
  }
  absl::StatusOr<Contexts> contexts = ReadContexts(path);
  if (!contexts.ok()) return ReportFault(std::string(contexts.status().message()), session);
  if (arguments.operands.empty()) {
    session.out << ContextsText(*contexts, session.table_width());
    return ExitCode::kOk;
  }
  const std::string& name = arguments.operands.front();
  if (HasConnection(arguments)) {
    DaemonAddress address = arguments.daemon;
    for (const AddressMember& member : kAddressMembers) {
      if (member.is_file) address.*member.value = Absolute(address.*member.value);
    }
    contexts->daemons[name] = address;
  } else if (!contexts->daemons.contains(name)) {
    return ReportUsage(absl::StrCat(UnknownContext(name, *contexts),
                                    "; or store it: genesisctl context NAME --server HOST:PORT"),
                       session);
  }
  contexts->current = name;
  if (const absl::Status status = WriteContexts(*contexts, path); !status.ok()) {
    return ReportFault(std::string(status.message()), session);
  }
  session.out << "context " << Printable(name) << ": "
              << Printable(contexts->daemons.at(name).server) << "\n";
  return ExitCode::kOk;
}

}  // namespace genesis::cli
