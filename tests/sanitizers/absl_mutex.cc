// absl::Mutex and absl::CondVar on top of POSIX threads, replacing those of the system's Abseil.
//
// ThreadSanitizer understands POSIX mutexes, even in uninstrumented libraries. Abseil's mutexes are
// atomics and futexes in an uninstrumented library, so ThreadSanitizer sees neither them nor what
// they guard, and would report each guarded member as a race. gRPC's own mutexes are Abseil's, too.
// This file is only linked into builds with GENESIS_SANITIZE=thread.

#include <absl/synchronization/mutex.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "tests/sanitizers/grpc_order.h"

namespace {

void Check(int result) {
  if (result != 0) std::abort();
}

// Returns the state, which is created at its first use, because Abseil's header declares the
// constructors constexpr.
template <typename State>
State& StateOf(std::atomic<intptr_t>& word) {
  intptr_t known = word.load(std::memory_order_acquire);
  if (known == 0) {
    auto* const made = new State;
    if (word.compare_exchange_strong(known, reinterpret_cast<intptr_t>(made))) return *made;
    delete made;
  }
  return *reinterpret_cast<State*>(known);
}

struct ConditionState {
  ~ConditionState() { Check(pthread_cond_destroy(&condition)); }

  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
};

struct MutexState {
  ~MutexState() { Check(pthread_mutex_destroy(&mutex)); }

  void Unlock() {
    WakeAwaiting();
    Check(pthread_mutex_unlock(&mutex));
  }

  // Requires the mutex. Returns true if the condition was signaled before `deadline`.
  bool Wait(pthread_cond_t& condition, absl::Time deadline) {
    if (deadline == absl::InfiniteFuture()) {
      Check(pthread_cond_wait(&condition, &mutex));
      return true;
    }
    const timespec until = absl::ToTimespec(deadline);
    const int result = pthread_cond_timedwait(&condition, &mutex, &until);
    if (result != ETIMEDOUT) Check(result);
    return result == 0;
  }

  // Requires the mutex. Wakes threads in Await, which evaluate their conditions again.
  void WakeAwaiting() {
    if (awaiting > 0) Check(pthread_cond_broadcast(&released.condition));
  }

  bool Await(const absl::Condition& condition, absl::Time deadline) {
    ++awaiting;
    bool in_time = true;
    bool holds = condition.Eval();
    // Wake other threads only once, because another evaluation changes nothing.
    if (!holds) WakeAwaiting();
    while (!holds && in_time) {
      in_time = Wait(released.condition, deadline);
      holds = condition.Eval();
    }
    --awaiting;
    return holds;
  }

  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  ConditionState released;
  int awaiting = 0;
};

// Requires the mutex. Returns true if the condition was signaled before `deadline`.
bool WaitOn(std::atomic<intptr_t>& mutex, std::atomic<intptr_t>& condition, absl::Time deadline) {
  auto& state = StateOf<MutexState>(mutex);
  state.WakeAwaiting();
  return state.Wait(StateOf<ConditionState>(condition).condition, deadline);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() { delete reinterpret_cast<MutexState*>(mu_.load()); }
void Mutex::Lock() {
  Check(pthread_mutex_lock(&StateOf<MutexState>(mu_).mutex));
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::EnterGrpc();
}
void Mutex::Unlock() {
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::LeaveGrpc();
  StateOf<MutexState>(mu_).Unlock();
}
bool Mutex::TryLock() {
  if (pthread_mutex_trylock(&StateOf<MutexState>(mu_).mutex) != 0) return false;
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::EnterGrpc();
  return true;
}
void Mutex::ReaderLock() { Lock(); }
void Mutex::ReaderUnlock() { Unlock(); }
bool Mutex::ReaderTryLock() { return TryLock(); }

void Mutex::AssertHeld() const {}
void Mutex::AssertReaderHeld() const {}
void Mutex::AssertNotHeld() const {}
void Mutex::ForgetDeadlockInfo() {}
void Mutex::EnableInvariantDebugging(void (*)(void*), void*) {}
void Mutex::EnableDebugLog(const char*) {}

void Mutex::Await(const Condition& condition) { AwaitWithDeadline(condition, InfiniteFuture()); }
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return AwaitWithDeadline(condition, Now() + timeout);
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  return StateOf<MutexState>(mu_).Await(condition, deadline);
}

void Mutex::LockWhen(const Condition& condition) {
  LockWhenWithDeadline(condition, InfiniteFuture());
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return LockWhenWithDeadline(condition, Now() + timeout);
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  Lock();
  return AwaitWithDeadline(condition, deadline);
}
void Mutex::ReaderLockWhen(const Condition& condition) { LockWhen(condition); }
bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition, Duration timeout) {
  return LockWhenWithTimeout(condition, timeout);
}
bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition, Time deadline) {
  return LockWhenWithDeadline(condition, deadline);
}

CondVar::~CondVar() { delete reinterpret_cast<ConditionState*>(cv_.load()); }
// gRPC's waits are recognized by the return address, so these functions do not call each other.
void CondVar::Wait(Mutex* mutex) {
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::LeaveGrpc();
  WaitOn(mutex->mu_, cv_, InfiniteFuture());
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::EnterGrpc();
}
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::LeaveGrpc();
  const bool late = !WaitOn(mutex->mu_, cv_, Now() + timeout);
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::EnterGrpc();
  return late;
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::LeaveGrpc();
  const bool late = !WaitOn(mutex->mu_, cv_, deadline);
  if (genesis::IsGrpc(__builtin_return_address(0))) genesis::EnterGrpc();
  return late;
}
void CondVar::Signal() { Check(pthread_cond_signal(&StateOf<ConditionState>(cv_).condition)); }
void CondVar::SignalAll() {
  Check(pthread_cond_broadcast(&StateOf<ConditionState>(cv_).condition));
}
void CondVar::EnableDebugLog(const char*) {}

ABSL_NAMESPACE_END
}  // namespace absl
