#pragma once

#include <grpcpp/grpcpp.h>

#include "server/auth/caller.h"

namespace genesis {

// Returns the credentials of a call: its token, verified client certificate and peer.
Credentials CredentialsOf(const grpc::ServerContextBase& context);

}  // namespace genesis
