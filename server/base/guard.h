#pragma once

#include <cstdint>
#include <exception>

#include "absl/status/status.h"

namespace genesis {

// The daemon's own code does not throw, but libraries may (bad_alloc above all), and so may bugs.
// Guards are placed where external calls enter and where threads start tasks: an exception becomes
// INTERNAL for that one call, a log line and a count.

// Logs and counts the error and converts it to a status. `place` is, e.g., "GetHistory" or "http".
absl::Status CaughtError(const char* place, const std::exception& error);

// Returns the number of exceptions since the last call, for a metric.
int64_t TakeCaughtErrors();

// Runs `call`. Returns OK if it did not throw.
template <typename Call>
absl::Status Guarded(const char* place, const Call& call) {
  try {
    call();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return CaughtError(place, error);
  }
}

// Returns the result of `call`, or INTERNAL if it threw.
template <typename Call>
absl::Status GuardedStatus(const char* place, const Call& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return CaughtError(place, error);
  }
}

}  // namespace genesis
