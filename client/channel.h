#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// A daemon, and what it takes to be let in; as the command line names it.
struct DaemonAddress {
  std::string server = "127.0.0.1:50051";  // "HOST:PORT" or "unix:PATH", the path as it is.
  std::string token_file;                  // --token-file; empty for none.
  std::string token;                       // GENESIS_TOKEN; token_file wins.
  std::string tls_ca;                      // --tls-ca; empty for no TLS.
  std::string tls_cert;                    // --tls-cert.
  std::string tls_key;                     // --tls-key.
};

// The connection that `address` asks for: plain, or with TLS when an authority is given, and with
// the token on every call; `options` besides. It is made at the first call. INVALID_ARGUMENT, with
// the option's name and what to do, when a file cannot be read or a token would travel unencrypted
// to another machine.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const DaemonAddress& address,
                                                           grpc::ChannelArguments options = {});

}  // namespace genesis
