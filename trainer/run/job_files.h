#pragma once

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Replaces each path in start.spec by the file or folder that it resolves to now, because DataFile
// and ReplayFile refuse symbolic links. INVALID_ARGUMENT, with the field, if a path resolves to a
// place outside of start.datasets_root and the checkpoints: it may have become a link since the job
// was accepted. Keeps a missing path, because opening it gives a better error.
absl::Status ResolveJobFiles(training::v1::StartJob& start);

}  // namespace genesis
