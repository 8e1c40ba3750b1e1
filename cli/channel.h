#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/statusor.h"
#include "cli/arguments.h"

namespace genesis::cli {

// The connection that the options ask for: plain, or with TLS when --tls-ca is given, and with the
// token on every call. It is made at the first call. INVALID_ARGUMENT, with the option's name and
// what to do, when a file cannot be read or a token would travel unencrypted to another machine.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Arguments& arguments);

}  // namespace genesis::cli
