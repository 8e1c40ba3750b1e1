#pragma once

#include <cstdint>
#include <exception>

#include "absl/status/status.h"

namespace genesis {

// The daemon's code throws nothing, but libraries do (bad_alloc above all), and bugs may. Guards
// stand where external calls come in and where threads begin tasks: an exception becomes INTERNAL
// for that one call, a line in the log and a count.

// Converts `error` to the caller's status; logs and counts it. `place`: "GetHistory", "http".
absl::Status CaughtError(const char* place, const std::exception& error);

// Returns the number of exceptions in the process since the last call, for a metric.
int64_t TakeCaughtErrors();

// Runs `call`; OK if it threw nothing.
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
