#include "trainer/worker/termination.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <utility>

namespace genesis {
namespace {

// The signal that ends the watching thread. Sent only to that thread.
constexpr int kEndWatch = SIGUSR1;

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, kEndWatch);
  return signals;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void OutliveParent() { prctl(PR_SET_PDEATHSIG, 0); }

TerminationWatch::TerminationWatch(std::function<void()> on_signal)
    : thread_([on_signal = std::move(on_signal)] {
        const sigset_t signals = Signals();
        for (int signal = 0; sigwait(&signals, &signal) == 0 && signal != kEndWatch;) on_signal();
      }) {}

TerminationWatch::~TerminationWatch() {
  pthread_kill(thread_.native_handle(), kEndWatch);
  thread_.join();
}

}  // namespace genesis
