#pragma once

#include <grpcpp/grpcpp.h>

#include "server/auth/caller.h"

namespace genesis {

// The credentials that a call brings along.
Credentials CredentialsOf(const grpc::ServerContextBase& context);

}  // namespace genesis
