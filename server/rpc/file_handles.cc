#include "server/rpc/file_handles.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace genesis {
namespace {

int ToCount(rlim_t limit) {
  constexpr rlim_t kMax = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(limit, kMax));
}

int Limit() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? ToCount(limit.rlim_cur) : 1024;
}

// Returns the number of open descriptors; -1 if no descriptor is free to count them.
int CountOpen() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  constexpr int kNotFiles = 3;  // ".", ".." and the folder's own handle.
  return entries - kNotFiles;
}

}  // namespace

int RaiseFileHandleLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return Limit();
}

bool HandleRoom::HasRoom() {
  if (unchecked_ > 0) {
    --unchecked_;
    return true;
  }
  const int open = CountOpen();
  const int room = Limit() / 4 * 3 - open;
  if (open < 0 || room <= 0) return false;
  // Other code also opens files; an eighth of the room leaves enough for it.
  unchecked_ = room / 8;
  return true;
}

}  // namespace genesis
