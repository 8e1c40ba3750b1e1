#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace genesis {

// The end of a program that was run, with what it wrote.
struct CommandResult {
  int exit_code = -1;  // -1 when a signal ended it.
  int signal = 0;      // That signal; else 0.
  std::string output;
  std::string errors;
};

struct CommandLimits {
  absl::Duration timeout = absl::Seconds(30);
  size_t max_output = size_t{8} << 20U;   // Bytes of `output`.
  size_t max_errors = size_t{64} << 10U;  // Bytes of `errors`; the rest is dropped.
};

// Runs `words`, a program and its arguments, with `input` as its standard input, and waits for its
// end. The program is looked for in PATH; it has the daemon's environment, a process group of its
// own, and no other of its file handles. SIGPIPE must be ignored: a program may end before it has
// read all of `input`, and that is no error.
//
// NOT_FOUND when there is no such program, DEADLINE_EXCEEDED when it took longer or `*stopping`
// became true, RESOURCE_EXHAUSTED when it wrote more: its process group is killed then.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& words,
                                         const std::string& input, const CommandLimits& limits,
                                         const std::atomic<bool>* stopping);

}  // namespace genesis
