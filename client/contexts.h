#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/environment.h"
#include "client/channel.h"

namespace genesis {

// A member of DaemonAddress that a context can store. `name` is its key in the file, and gives its
// option and environment variable: token_file is --token-file and GENESIS_TOKEN_FILE.
struct AddressMember {
  const char* name;
  std::string DaemonAddress::*value;
  bool is_file;
};
inline constexpr AddressMember kAddressMembers[] = {
    {"server", &DaemonAddress::server, false},
    {"token_file", &DaemonAddress::token_file, true},
    {"tls_ca", &DaemonAddress::tls_ca, true},
    {"tls_cert", &DaemonAddress::tls_cert, true},
    {"tls_key", &DaemonAddress::tls_key, true}};

// The daemons that a user has named, as kubectl's contexts name clusters. Stored as YAML:
//
//   current: lab
//   contexts:
//     lab: {server: "gpu-1:50051", token_file: /home/ann/lab.token, tls_ca: /home/ann/lab.crt}
struct Contexts {
  std::string current;  // Name of the one in use; empty for none.
  std::map<std::string, DaemonAddress> daemons;
};

// Returns the path of the file: genesis/contexts.yaml in XDG_CONFIG_HOME, by default ~/.config.
// Empty if neither XDG_CONFIG_HOME nor HOME is set.
std::string ContextsFile(const Environment& environment);

// Reads the file; one that does not exist has no contexts. INVALID_ARGUMENT lists its errors.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);

// Returns the text of an error, such as `"lob": unknown context; did you mean lab?`.
std::string UnknownContext(const std::string& name, const Contexts& contexts);

// Writes the file and creates its folder.
absl::Status WriteContexts(const Contexts& contexts, const std::string& path);

}  // namespace genesis
