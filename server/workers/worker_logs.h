#pragma once

#include <set>
#include <string>
#include <vector>

namespace genesis {

// The output of workers, in `<folder>/<worker id>.log`. Each worker writes its own file, because
// it may outlive the daemon. A file over 16 MiB is cut: its newest MiB moves to `<worker
// id>.log.1`. Files of failed workers are kept for inspection, up to 256 MiB together; the
// oldest are removed first.
//
// Owner: WorkerPool. Thread-safe: its only state is the folder. Failure: files that cannot be read
// or removed are skipped; the next Trim tries again.
class WorkerLogs {
 public:
  explicit WorkerLogs(std::string folder) : folder_(std::move(folder)) {}

  std::string PathOf(const std::string& worker_id) const;
  // Returns the newest lines, at most 50 of at most kMaxLineBytes, sanitized for the store.
  std::vector<std::string> Tail(const std::string& worker_id) const;
  void Remove(const std::string& worker_id) const;
  // Enforces the size limits. Files of `running` workers are cut, not removed.
  void Trim(const std::set<std::string>& running) const;

 private:
  const std::string folder_;
};

}  // namespace genesis
