#include "trainer/distributed/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random_bytes.h"

namespace genesis {
namespace {

// Returns 0 or an error of errno(3).
int ReadFrom(int process, uint64_t address, void* to, size_t bytes) {
  const iovec here{.iov_base = to, .iov_len = bytes};
  const iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = bytes};
  const ssize_t read = process_vm_readv(process, &here, 1, &there, 1, /*flags=*/0);
  if (read < 0) return errno;
  return static_cast<size_t>(read) == bytes ? 0 : EFAULT;
}

}  // namespace

PeerMemory::PeerMemory(RankGroup& ranks) : ranks_(ranks), cookie_(RandomNumber()) {
  const std::vector<std::string> told = ranks_.FromAll(
      absl::StrCat(getpid(), " ", reinterpret_cast<uint64_t>(&cookie_), " ", cookie_));
  std::string own;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const std::string fault = Find(told[static_cast<size_t>(rank)]);
    if (fault.empty() || !own.empty() || rank == ranks_.rank()) continue;
    own = absl::StrCat("rank ", ranks_.rank(), " cannot read memory of rank ", rank, " (", fault,
                       ")");
  }
  why_not_ = ranks_.FirstFault(own);
}

// Adds a rank's process, described by its message. Returns why it cannot be read, or "".
std::string PeerMemory::Find(const std::string& told) {
  const std::vector<std::string> words = absl::StrSplit(told, ' ');
  int& process = processes_.emplace_back();
  uint64_t address = 0, cookie = 0, found = 0;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &process) ||
      !absl::SimpleAtoi(words[1], &address) || !absl::SimpleAtoi(words[2], &cookie)) {
    return "it sent no address";
  }
  const int error = ReadFrom(process, address, &found, sizeof(found));
  if (error != 0) return absl::StrCat("process_vm_readv: ", std::strerror(error));
  return found == cookie ? "" : "its process has another number here";
}

void PeerMemory::Read(int rank, uint64_t address, void* to, size_t bytes) const {
  const int process = processes_[static_cast<size_t>(rank)];
  const int error = ReadFrom(process, address, to, bytes);
  if (error == 0) return;
  ranks_.Fail(
      "add up gradients", rank,
      error == ESRCH ? "has ended" : absl::StrCat("cannot be read (", std::strerror(error), ")"));
}

}  // namespace genesis
