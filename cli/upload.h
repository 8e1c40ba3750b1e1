#pragma once

#include <string>

#include "cli/session.h"
#include "grpcpp/support/status.h"

namespace genesis::cli {

// Sends a file of this machine to the daemon, from where an earlier try stopped; `path` becomes
// what a job names it by. Nothing is sent where the daemon has it. Waits and tries again while the
// daemon is away, for a minute without progress. NOT_FOUND for a file that cannot be read here;
// else the status of StartUpload or WriteUpload.
grpc::Status UploadFile(const std::string& file, Session& session, std::string& path);

}  // namespace genesis::cli
