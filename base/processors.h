#pragma once

#include <string>

namespace genesis {

// Returns the number of processors that the calling thread may run on, at least 1.
int AffinityProcessors();

// Returns the number of processors that this process may use, at least 1: AffinityProcessors,
// limited by the quota of its control group and of the groups above it (version 2, cpu.max),
// rounded up. If more threads run, the kernel stops all of them for a part of each quota period.
//
// `own_group` is a file like /proc/self/cgroup. `groups` is the mount point of the control groups.
int UsableProcessors(const std::string& own_group = "/proc/self/cgroup",
                     const std::string& groups = "/sys/fs/cgroup");

}  // namespace genesis
