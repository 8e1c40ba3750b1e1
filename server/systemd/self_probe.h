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

// A thread that probes the daemon as a client would, with a new connection to the real
// listener and a health check with a deadline, and that probes the writer thread. A process
// that merely exists passes neither probe.
//
// Owner: the daemon. Threads: its own. Failure: none. A failed probe is logged once
// and shows in last_success.
class SelfProbe {
 public:
  struct Options {
    std::string target;  // E.g. "127.0.0.1:50051".
    // The certificate is not verified, because the probe connects only to this machine.
    bool tls = false;
    absl::Duration period;
    // Runs `alive` on the writer thread.
    std::function<void(std::function<void()> alive)> ask_writer;
  };
  explicit SelfProbe(Options options);
  ~SelfProbe() { Stop(); }
  SelfProbe(const SelfProbe&) = delete;
  SelfProbe& operator=(const SelfProbe&) = delete;

  void Start();
  void Stop();  // Idempotent.

  // Returns the start time of the newest successful probe; InfinitePast before the first.
  absl::Time last_success() const;

 private:
  void Loop();
  // Returns "" if both probes succeeded, otherwise the problem.
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

// Returns the address at which clients on this machine reach a daemon that listens on `address`:
// "127.0.0.1:1" for "0.0.0.0:1".
std::string LocalTarget(const std::string& address);

}  // namespace genesis
