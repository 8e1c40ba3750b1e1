#pragma once

#include <string>

#include "cli/session.h"
#include "grpcpp/support/status.h"

namespace genesis::cli {

// Uploads a local file to the daemon, continuing where an earlier attempt stopped. `path` becomes
// the file's name for job specifications. Sends nothing if the daemon has the file. While the
// daemon is away, retries for a minute without progress. NOT_FOUND if the file cannot be read here;
// otherwise the status of StartUpload or WriteUpload.
grpc::Status UploadFile(const std::string& file, Session& session, std::string& path);

}  // namespace genesis::cli
