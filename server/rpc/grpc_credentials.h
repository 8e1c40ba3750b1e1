#pragma once

#include <grpcpp/grpcpp.h>

#include "server/auth/caller.h"

namespace genesis {

// What a call brings along to say who makes it.
Credentials CredentialsOf(const grpc::ServerContextBase& context);

}  // namespace genesis
