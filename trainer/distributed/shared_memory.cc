#include "trainer/distributed/shared_memory.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random_bytes.h"

namespace genesis {
namespace {

constexpr size_t kPage = 4096;
// Interval at which a waiting rank checks that the other rank is alive.
constexpr std::chrono::milliseconds kGlance{20};
// Number of spins before a waiting rank sleeps: spinning is cheaper for shorter waits.
constexpr int kSpins = 2000;

size_t WholePages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

absl::Status Failed(const char* what) {
  const std::string message = absl::StrCat("shared memory: ", what, ": ", std::strerror(errno));
  const bool full = errno == ENOSPC || errno == ENOMEM || errno == EMFILE;
  return full ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

struct flock LockOf(int rank, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

void Wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT32_MAX, nullptr, nullptr,
          0);
}

// Sleeps until the word is no longer `seen`, or for one check interval.
void Sleep(std::atomic<uint32_t>& word, uint32_t seen) {
  timespec time{};
  time.tv_nsec = std::chrono::nanoseconds(kGlance).count();
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// The header of a rank's part. Its counters follow, then its region on a separate page.
struct alignas(64) SharedMemory::Rank {
  uint64_t cookie;
  // Number of sleepers on the counters of this rank.
  std::atomic<uint32_t> waiters;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

SharedMemory::SharedMemory(int descriptor, const Size& size, int rank)
    : descriptor_(descriptor),
      size_(size),
      rank_(rank),
      rank_bytes_(WholePages(sizeof(Rank) + size.counters * sizeof(uint32_t)) +
                  WholePages(size.bytes)) {}

SharedMemory::~SharedMemory() {
  if (memory_ != nullptr) munmap(memory_, bytes());
  close(descriptor_);
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(const Size& size, int rank) {
  // Anonymous, so that nothing is left behind when ranks end.
  const int descriptor = memfd_create("genesis-gradients", MFD_CLOEXEC);
  if (descriptor < 0) return Failed("memfd_create");
  std::unique_ptr<SharedMemory> memory(new SharedMemory(descriptor, size, rank));
  if (ftruncate(descriptor, static_cast<off_t>(memory->bytes())) != 0) return Failed("ftruncate");
  if (absl::Status status = memory->Map(); !status.ok()) return status;
  memory->of(0).cookie = RandomNumber();
  if (absl::Status status = memory->HoldLock(); !status.ok()) return status;
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Open(const Address& address,
                                                                 const Size& size, int rank) {
  // Opens a separate file description, which has a separate lock.
  const std::string path = absl::StrCat("/proc/", address.process, "/fd/", address.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return Failed(path.c_str());
  std::unique_ptr<SharedMemory> memory(new SharedMemory(descriptor, size, rank));
  if (lseek(descriptor, 0, SEEK_END) != static_cast<off_t>(memory->bytes())) {
    return absl::UnavailableError(absl::StrCat("shared memory: ", path, " is another file"));
  }
  if (absl::Status status = memory->Map(); !status.ok()) return status;
  if (memory->of(0).cookie != address.cookie) {
    return absl::UnavailableError(absl::StrCat("shared memory: ", path, " is another job's"));
  }
  if (absl::Status status = memory->HoldLock(); !status.ok()) return status;
  return memory;
}

absl::Status SharedMemory::Map() {
  void* const memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) return Failed("mmap");
  memory_ = static_cast<std::byte*>(memory);
  return absl::OkStatus();
}

absl::Status SharedMemory::HoldLock() {
  struct flock lock = LockOf(rank_, F_WRLCK);
  if (fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) return Failed("fcntl");
  return absl::OkStatus();
}

bool SharedMemory::lives(int rank) const {
  struct flock lock = LockOf(rank, F_WRLCK);
  return fcntl(descriptor_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

SharedMemory::Address SharedMemory::address() const {
  return {.process = getpid(), .descriptor = descriptor_, .cookie = of(0).cookie};
}

SharedMemory::Rank& SharedMemory::of(int rank) const {
  return *reinterpret_cast<Rank*>(memory_ + rank_bytes_ * static_cast<size_t>(rank));
}

std::byte* SharedMemory::region(int rank) const {
  return memory_ + rank_bytes_ * static_cast<size_t>(rank) + rank_bytes_ - WholePages(size_.bytes);
}

std::byte* SharedMemory::common() const {
  return memory_ + rank_bytes_ * static_cast<size_t>(size_.ranks);
}

size_t SharedMemory::bytes() const {
  return rank_bytes_ * static_cast<size_t>(size_.ranks) + WholePages(size_.common);
}

std::atomic<uint32_t>& SharedMemory::word(int rank, size_t number) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(&of(rank) + 1)[number];
}

uint32_t SharedMemory::counter(int rank, size_t number) const {
  return word(rank, number).load(std::memory_order_acquire);
}

void SharedMemory::Set(size_t number, uint32_t value) {
  // Sequentially consistent, as in Await: either this thread sees the sleeper, or the sleeper sees
  // the value.
  word(rank_, number).store(value);
  if (of(rank_).waiters.load() > 0) Wake(word(rank_, number));
}

std::string SharedMemory::Await(int rank, size_t number, uint32_t value,
                                std::chrono::milliseconds timeout, const Reminder& reminder) {
  for (int i = 0; i < kSpins; ++i) {
    if (counter(rank, number) == value) return "";
    Relax();
  }
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<uint32_t>& word = this->word(rank, number);
  of(rank).waiters.fetch_add(1);
  std::string fault;
  auto reminded = reminder.first;
  for (uint32_t seen = word.load(); seen != value; seen = word.load()) {
    Sleep(word, seen);
    if (word.load() == value) break;
    if (!lives(rank)) {
      // The rank may have set the counter before it ended.
      fault = word.load() == value ? "" : "has ended";
      break;
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (waited > timeout) {
      fault = absl::StrFormat("has been silent for %g s",
                              std::chrono::duration<double>(timeout).count());
      break;
    }
    if (waited > reminded) {
      reminder.tell(waited.count());
      reminded *= 2;
    }
  }
  of(rank).waiters.fetch_sub(1);
  return fault;
}

}  // namespace genesis
