#pragma once

#include <ctime>

namespace genesis {

// Returns the processor time of all threads of this process so far, in seconds.
inline double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace genesis
