#pragma once

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Replaces each path of start.spec by the file or folder that it leads to now, so that what is
// opened later is that one and no link: DataFile and ReplayFile refuse a link. INVALID_ARGUMENT,
// with the field, for one that leads out of start.datasets_root, which may have become a link since
// the job was accepted. A missing path stays as it is, for who opens it knows best what to say.
absl::Status ResolveJobFiles(training::v1::StartJob& start);

}  // namespace genesis
