#pragma once

#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Replaces each path in `spec` by the file or folder that it resolves to now, because DataFile and
// ReplayFile refuse symbolic links. INVALID_ARGUMENT, with the field, if a path resolves to a place
// outside of the dataset root and the folder of checkpoints: it may have become a link since the
// job was accepted. With an empty root every place is accepted. Keeps a missing path, because
// opening it gives a better error.
absl::Status ResolveJobFiles(const std::string& datasets_root, const std::string& checkpoint_dir,
                             training::v1::JobSpec& spec);

}  // namespace genesis
