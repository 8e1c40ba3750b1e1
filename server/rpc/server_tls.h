#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "server/auth/tls_files.h"

namespace genesis {

// Credentials of one listening address: TLS with what `store` holds when a connection is made, so
// that a new certificate is used at once and old connections go on. With `client_certificates` a
// client is asked for one; what it shows must be signed by the client authority, but it may show
// none: then it has no name, and the gate decides what that is good for (health, for probes).
// `store` outlives the server.
std::shared_ptr<grpc::ServerCredentials> ReloadingTls(const TlsStore* store,
                                                      bool client_certificates);

}  // namespace genesis
