#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace genesis {

// The exit status of a program and its output.
struct CommandResult {
  int exit_code = -1;  // -1 if a signal ended it.
  int signal = 0;      // The signal; otherwise 0.
  std::string output;
  std::string errors;
};

struct CommandLimits {
  absl::Duration timeout = absl::Seconds(30);
  size_t max_output = size_t{8} << 20U;   // Bytes of `output`.
  size_t max_errors = size_t{64} << 10U;  // Bytes of `errors`; the rest is dropped.
};

// Runs `words`, a program and its arguments, with `input` as its standard input, and waits for it
// to exit. The program is looked up in PATH. It gets the daemon's environment, its own process
// group, and no other file handles. SIGPIPE must be ignored, because a program may exit before it
// has read all of `input`, which is not an error.
//
// NOT_FOUND if there is no such program, DEADLINE_EXCEEDED after the timeout or if `*stopping`
// became true, RESOURCE_EXHAUSTED if it wrote too much. The last two kill its process group.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& words,
                                         const std::string& input, const CommandLimits& limits,
                                         const std::atomic<bool>* stopping);

}  // namespace genesis
