#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace genesis {

// A stream that may stay silent for long, so its caller's permission is checked from outside.
class QuietStream {
 public:
  virtual ~QuietStream() = default;
  // Ends the stream if its caller is no longer admitted. Any thread may call it.
  virtual void CheckAdmission() = 0;
};

// The open watches of every transport. Their number is limited in total and per caller, because
// each costs time at every change of its job, and over HTTP, because each holds a connection there.
//
// Owner: ApiGate. Threads: any. Failure: RESOURCE_EXHAUSTED naming the limit.
class OpenWatches {
 public:
  static constexpr int kMax = 2048;
  static constexpr int kMaxOfCaller = 512;
  static constexpr int kMaxOverHttp = 128;

  absl::Status Open(const std::shared_ptr<QuietStream>& watch, const std::string& caller,
                    const std::string& protocol);
  // Called once for each opened watch.
  void Close(const QuietStream* watch);
  // Makes every watch check again whether its caller is admitted.
  void CheckAdmissions();

 private:
  struct Entry {
    std::weak_ptr<QuietStream> watch;
    std::string caller;
    bool over_http = false;
  };

  absl::Mutex mutex_;
  std::map<const QuietStream*, Entry> open_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> of_caller_ ABSL_GUARDED_BY(mutex_);
  int over_http_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace genesis
