#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"

namespace genesis {

// Asks the daemon how it is as a client would: a new connection through the real listener, a health
// check over it with a deadline; and asks the thread that changes jobs for a sign of life. A
// process that merely exists passes neither.
//
// Owner: the daemon. Threads: one of its own. Failure: none; what fails is logged once and shows in
// last_success.
class SelfProbe {
 public:
  struct Options {
    std::string target;  // "127.0.0.1:50051".
    bool tls = false;    // Whose certificate it is does not matter: only this machine is asked.
    absl::Duration period;
    // Calls back from the thread that changes jobs.
    std::function<void(std::function<void()> alive)> ask_writer;
  };
  explicit SelfProbe(Options options);
  ~SelfProbe() { Stop(); }
  SelfProbe(const SelfProbe&) = delete;
  SelfProbe& operator=(const SelfProbe&) = delete;

  void Start();
  void Stop();  // Idempotent.

  // When the newest probe that passed began; InfinitePast before the first.
  absl::Time last_success() const;

 private:
  void Loop();
  // "" when all is well.
  std::string Probe() const;
  std::string AskListener() const;
  std::string AskWriter() const;

  const Options options_;
  mutable absl::Mutex mutex_;
  SteadyCondition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_success_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread thread_;
};

// Where a client on this machine reaches a daemon that listens on `address`: "0.0.0.0:1" is
// "127.0.0.1:1".
std::string LocalTarget(const std::string& address);

}  // namespace genesis
