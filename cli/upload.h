#pragma once

#include <string>

#include "cli/session.h"
#include "grpcpp/support/status.h"

namespace genesis::cli {

// Uploads a local file to the daemon, continuing where an earlier attempt stopped. `path` receives
// the file's path for job specifications. Sends nothing if the daemon already has the file. While
// the daemon is unavailable, retries a call for at least a minute. NOT_FOUND if the local file
// cannot be read, DATA_LOSS if it shrinks, otherwise the status of StartUpload or WriteUpload.
grpc::Status UploadFile(const std::string& file, Session& session, std::string& path);

}  // namespace genesis::cli
