#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/auth/tls_files.h"

namespace genesis {

// Returns the credentials of one listening address: TLS with the material of `store` at the time of
// the handshake, so that a new certificate is used immediately while old connections continue. If
// `client_certificates`, clients are asked for a certificate, which the client CA must have signed.
// Clients without one have no name, and the gate decides what they may do (health, for probes).
// `store` must outlive the server.
std::shared_ptr<grpc::ServerCredentials> ReloadingTls(const TlsStore* store,
                                                      bool client_certificates);

}  // namespace genesis
