#pragma once

#include <cstdint>
#include <exception>

#include "absl/status/status.h"

namespace genesis {

// Our code throws nothing, but libraries do, bad_alloc first of all, and so may a defect. Where
// calls of others come in, and where a thread begins a task, what is thrown ends at a guard:
// INTERNAL for the one call, a line in the log and a count, while everybody else is served.

// The meaning of `error` for the caller; logged and counted. `place`: "GetHistory", "http".
absl::Status CaughtError(const char* place, const std::exception& error);

// The exceptions of the whole process since it was asked last: for a metric.
int64_t TakeCaughtErrors();

// Runs `call`; OK when it threw nothing.
template <typename Call>
absl::Status Guarded(const char* place, const Call& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return CaughtError(place, error);
  }
}

// Returns what `call` returns, or INTERNAL.
template <typename Call>
absl::Status GuardedStatus(const char* place, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return CaughtError(place, error);
  }
}

}  // namespace genesis
