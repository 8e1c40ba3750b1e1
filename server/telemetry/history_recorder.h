#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "genesis/training/v1/operations.pb.h"
#include "metrics/metrics.h"
#include "server/store/history_store.h"

namespace genesis {

// The writer of the history. It writes a row per running job at an interval, and the rows passed to
// Note. It removes rows that are too old.
//
// Owner: the daemon. Threads: any may call Note, which never blocks. A separate thread writes, so
// that a slow or full disk blocks nothing else. Failure: rows that cannot be written are queued, up
// to the newest 10,000, and retried every few seconds; lost rows are counted. A failure is logged
// once when it starts and once when it is over.
class HistoryRecorder {
 public:
  using Rows = std::vector<training::v1::HistoryRow>;
  struct Options {
    absl::Duration interval = absl::Seconds(30);
    absl::Duration retention = absl::Hours(24 * 30);
    absl::Duration retry = absl::Seconds(5);
  };

  // `sample` returns the rows of the running jobs. It is called on the recorder's thread.
  HistoryRecorder(Options options, HistoryStore* store, Metrics* metrics,
                  std::function<Rows()> sample);
  ~HistoryRecorder() { Stop(); }

  void Start();
  // Writes the queued rows if possible, then ends the thread. Idempotent.
  void Stop();
  void Note(const training::v1::HistoryRow& row);

 private:
  void Loop();
  void WriteWaiting();
  void ForgetOld();
  void TellStatus(const absl::Status& status);
  void DropOverflow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  HistoryStore* const store_;
  Metrics* const metrics_;
  const std::function<Rows()> sample_;
  // Used by the recorder's thread only. `told_` is the last status that was logged.
  absl::Status told_;
  absl::Time next_sample_ = absl::InfinitePast();
  absl::Time next_write_ = absl::InfinitePast();
  absl::Time next_forget_ = absl::InfinitePast();
  std::thread thread_;

  absl::Mutex mutex_;
  SteadyCondition changed_;
  std::deque<training::v1::HistoryRow> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace genesis
