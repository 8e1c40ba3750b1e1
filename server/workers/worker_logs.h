#pragma once

#include <set>
#include <string>
#include <vector>

namespace genesis {

// The output of workers: `<folder>/<worker id>.log` each, which the worker writes itself, for it
// outlives the daemon. A file over 16 MiB is cut: its newest MiB goes to `<worker id>.log.1`, and
// it begins anew. Files of workers that failed are kept for people, 256 MiB together, the oldest
// removed first.
//
// Owner: WorkerPool. Thread-safe: holds no state but the folder's. Failure: what cannot be read or
// removed is passed over; Trim comes again.
class WorkerLogs {
 public:
  explicit WorkerLogs(std::string folder) : folder_(std::move(folder)) {}

  std::string PathOf(const std::string& worker_id) const;
  // The newest lines, at most 50 of at most kMaxLineBytes, fit to be stored.
  std::vector<std::string> Tail(const std::string& worker_id) const;
  void Remove(const std::string& worker_id) const;
  // Keeps the bounds; files of `running` workers are cut, not removed.
  void Trim(const std::set<std::string>& running) const;

 private:
  const std::string folder_;
};

}  // namespace genesis
