#include "trainer/runtime/idle_threads.h"

#include <dlfcn.h>

#include <fstream>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/processors.h"
#include "trainer/runtime/start_settings.h"

namespace genesis {
namespace {

constexpr std::chrono::seconds kInterval{1};
// Maximum fraction of the interval that the training thread may wait for a processor before the
// OpenMP threads sleep. It waits about 1 % of the time if it has its processors to itself, and
// about 33 % next to one busy program. Measured, spinning and sleeping break even at about 25 %.
constexpr double kMaxWaiting = 0.25;

// libgomp's entry point for "#pragma omp parallel"; LibTorch loads the library.
using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
Parallel FindParallel() { return reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel")); }

// Returns the size that makes libgomp's threads exceed the processors by one.
int SizeOfCrowd(int threads) {
  const bool ours = IsSet(kSleep) && IsSet(kSpins);
  if (threads < 2 || !ours || FindParallel() == nullptr) return 0;
  return AffinityProcessors() - threads + 2;
}

}  // namespace

// A thread with a separate team, whose threads live until it ends.
class IdleThreads::Crowd {
 public:
  explicit Crowd(int size) : thread_([this, size] { Hold(size); }) {
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&there_));
  }
  ~Crowd() {
    {
      const absl::MutexLock lock(&mutex_);
      leaving_ = true;
    }
    thread_.join();
  }

 private:
  void Hold(int size) {
    FindParallel()([](void*) {}, nullptr, static_cast<unsigned>(size), 0);
    const absl::MutexLock lock(&mutex_);
    there_ = true;
    mutex_.Await(absl::Condition(&leaving_));
  }

  absl::Mutex mutex_;
  bool there_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

IdleThreads::IdleThreads(int threads, Waited waited)
    : crowd_size_(SizeOfCrowd(threads)), waited_(std::move(waited)) {}

IdleThreads::~IdleThreads() = default;

void IdleThreads::Adapt(Clock::time_point now) {
  if (crowd_size_ == 0 || (looked_ && now - *looked_ < kInterval)) return;
  const std::optional<std::chrono::nanoseconds> waited = waited_();
  if (!waited) return;
  if (looked_) {
    const bool contended =
        std::chrono::duration<double>(*waited - waited_then_) > kMaxWaiting * (now - *looked_);
    if (contended && awake()) crowd_ = std::make_unique<Crowd>(crowd_size_);
    if (!contended) crowd_.reset();
  }
  looked_ = now;
  waited_then_ = *waited;
}

std::optional<std::chrono::nanoseconds> IdleThreads::WaitedInKernel() {
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t ran = 0;
  int64_t waited = 0;
  if (!(file >> ran >> waited)) return std::nullopt;
  return std::chrono::nanoseconds(waited);
}

}  // namespace genesis
