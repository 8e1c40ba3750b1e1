#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/auth/tls_files.h"

namespace genesis {

// Returns the credentials of one listening address: TLS with the material of `store` at the time of
// the handshake, so that a new certificate is used immediately and old connections go on. If
// `client_certificates`, clients are asked for a certificate, which must be signed by the client
// CA. Clients without one have no name, and the gate decides what they may do (health, for probes).
// `store` outlives the server.
std::shared_ptr<grpc::ServerCredentials> ReloadingTls(const TlsStore* store,
                                                      bool client_certificates);

}  // namespace genesis
