#pragma once

#include <string>
#include <vector>

#include "base/exit_code.h"
#include "cli/session.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis::cli {

// The source of the job that a command submits.
struct JobInput {
  std::string file;                    // "-" is standard input.
  std::vector<std::string> overrides;  // "training.max_steps=100", as for ParseJobFile.
  // Upload the local files that the job file names, relative to its folder, and name the daemon's
  // copies instead. Paths without a local file are kept, because the daemon may have them.
  bool upload = false;
};

// Reads the job. Prints the error if there is one.
ExitCode ReadJob(const JobInput& input, Session& session, training::v1::JobSpec& spec);

}  // namespace genesis::cli
