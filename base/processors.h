#pragma once

#include <string>

namespace genesis {

// Processors that this process may use, at least 1: those of its affinity, and no more than the
// quota of its control group or of one above it (version 2, cpu.max), rounded up. With more threads
// than that the kernel stops all of them for most of each tenth of a second.
//
// `own_group` is a file like /proc/self/cgroup, `groups` where the control groups are mounted.
int UsableProcessors(const std::string& own_group = "/proc/self/cgroup",
                     const std::string& groups = "/sys/fs/cgroup");

}  // namespace genesis
