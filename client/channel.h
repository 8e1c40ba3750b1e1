#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// A daemon's address and the credentials for it, as the command line names them.
struct DaemonAddress {
  std::string server = "127.0.0.1:50051";  // "HOST:PORT" or "unix:PATH"; the path is not escaped.
  std::string token_file;                  // --token-file; empty for none.
  std::string token;                       // GENESIS_TOKEN; token_file wins.
  std::string tls_ca;                      // --tls-ca; empty for no TLS.
  std::string tls_cert;                    // --tls-cert.
  std::string tls_key;                     // --tls-key.
};

// Creates a channel for `address`: plaintext, or TLS if an authority is given. Every call carries
// the token. `options` are applied too. Connects at the first call. INVALID_ARGUMENT, with the
// option's name and a cure, if a file cannot be read or a token would travel unencrypted to another
// machine.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const DaemonAddress& address,
                                                           grpc::ChannelArguments options = {});

}  // namespace genesis
