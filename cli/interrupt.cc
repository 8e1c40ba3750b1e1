#include "cli/interrupt.h"

#include <csignal>
#include <thread>
#include <utility>

#include <unistd.h>

namespace genesis::cli {

void Interrupt::Set(std::function<void()> action) {
  absl::MutexLock lock(&mutex_);
  action_ = std::move(action);
  fired_ = false;
}

void Interrupt::Clear() {
  absl::MutexLock lock(&mutex_);
  action_ = nullptr;
}

bool Interrupt::Fire() {
  // Run under the lock, so that Clear returns only after the action has ended.
  absl::MutexLock lock(&mutex_);
  if (action_ == nullptr) return false;
  fired_ = true;
  action_();
  return true;
}

bool Interrupt::fired() const {
  absl::MutexLock lock(&mutex_);
  return fired_;
}

void StartSignalThread(Interrupt& interrupt) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals, &interrupt] {
    int signal = 0;
    while (sigwait(&signals, &signal) == 0) {
      constexpr int kInterrupted = 128 + SIGINT;  // Exit code of shells for Ctrl-C.
      if (!interrupt.Fire()) _exit(kInterrupted);
    }
  }).detach();
}

}  // namespace genesis::cli
