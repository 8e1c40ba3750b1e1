#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace genesis {

// One line of the audit log: caller, method, subject and outcome. Contains no token and no request.
struct AuditEntry {
  std::string caller;  // Empty if unknown.
  std::string role;
  std::string peer;
  std::string protocol;
  std::string method;
  std::string subject;
  std::string outcome;  // E.g. "OK", "PERMISSION_DENIED".
  bool refused = false;
};

// The audit log. Each entry is a line of JSON, appended by a single write, so that lines never
// interleave and the kernel has the line when Write returns. Refusals cannot fill the disk: more
// than 100 within a minute are only counted, and the next line reports their number.
//
// Owner: the daemon. Threads: any. Failure: a line that cannot be written is logged, at most once a
// minute, and reported to `on_lost`. The API call itself continues.
class AuditLog {
 public:
  using Clock = std::function<absl::Time()>;
  // Called for each line that could not be written.
  using Lost = std::function<void()>;

  // Creates the file with mode 0640 and its folder. FAILED_PRECONDITION if it cannot be opened.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, Clock clock,
                                                        Lost on_lost);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  void Write(const AuditEntry& entry);
  // Opens the path again after log rotation has moved the file.
  absl::Status Reopen();

 private:
  AuditLog(std::string path, Clock clock, Lost on_lost, int fd);
  bool MayWrite(const AuditEntry& entry, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(std::string line, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Clock clock_;
  const Lost on_lost_;
  absl::Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_);
  // True if the last line was truncated, so that the next write starts a new line.
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time window_begin_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int refusals_in_window_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t suppressed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time last_complaint_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace genesis
