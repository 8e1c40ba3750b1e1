#pragma once

#include <vector>

namespace genesis {

// A variable that a library reads from the environment once, before main.
struct StartSetting {
  const char* name;
  const char* value;
};

// libgomp: threads sleep immediately if there are more threads than processors, otherwise after
// some milliseconds, as is its default. See IdleThreads.
inline constexpr StartSetting kSleep = {"OMP_WAIT_POLICY", "PASSIVE"};
inline constexpr StartSetting kSpins = {"GOMP_SPINCOUNT", "300000"};
// glibc: malloc requests large pages (madvise) if the machine grants them on request, so that
// products of large matrices look up fewer pages. It keeps freed memory for the next step, which
// would otherwise wait for the kernel to zero it again. See docs/benchmarks/optimizations.md for
// both effects.
inline constexpr StartSetting kMalloc = {
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1099511627776:"
    "glibc.malloc.trim_threshold=1099511627776"};

// Returns whether the environment has this value.
bool IsSet(const StartSetting& setting);

// Returns the settings that the environment does not define. A variable set by the user is kept;
// either of libgomp's variables counts for both.
std::vector<StartSetting> MissingStartSettings();

// Restarts the program with missing settings, if any, with the same process ID, arguments and name.
// Call before there are other threads. On failure training is slower but correct.
void RestartWithSettings(char** argv);

}  // namespace genesis
