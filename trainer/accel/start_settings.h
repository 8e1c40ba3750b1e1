#pragma once

#include <vector>

namespace genesis {

// A variable that a library reads from the environment once, before main.
struct StartSetting {
  const char* name;
  const char* value;
};

// libgomp: threads sleep at once when they are more than the processors, and else after some
// milliseconds, as is its own default. See IdleThreads.
inline constexpr StartSetting kSleep = {"OMP_WAIT_POLICY", "PASSIVE"};
inline constexpr StartSetting kSpins = {"GOMP_SPINCOUNT", "300000"};
// glibc: malloc asks for large pages (madvise) where the machine grants them to who asks, so that
// products of large matrices look up fewer pages, and keeps what is freed for the next step, which
// would wait for the kernel to zero it again. docs/performance.md has what both bring.
inline constexpr StartSetting kMalloc = {
    "GLIBC_TUNABLES",
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1099511627776:"
    "glibc.malloc.trim_threshold=1099511627776"};

// Whether the environment has it so.
bool IsSet(const StartSetting& setting);

// The settings that the environment leaves open: a setting of the caller's stands, and one of
// libgomp's for both.
std::vector<StartSetting> MissingStartSettings();

// Starts the program again with them, where any are missing: same process id, arguments and name.
// Call it before any other thread is there. Where it cannot, training is slower and not wrong.
void RestartWithSettings(char** argv);

}  // namespace genesis
