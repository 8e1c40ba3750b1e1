#pragma once

#include <compare>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/files/memory_file.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/ledger/job_view.h"
#include "server/workers/worker_pool.h"

namespace genesis {

// One version of the weights of a job. Unchanged once it is shared.
struct HeldWeights {
  training::v1::PublishedWeights weights;
  std::unique_ptr<MemoryFile> file;
  std::string key;  // Secret with which a reader on this host gets the file.

  int64_t number() const { return weights.version().number(); }
};

// The kind of weights that a watcher reads.
struct WeightsKind {
  training::v1::WeightsFormat format = training::v1::WEIGHTS_FORMAT_FP32;
  bool average = false;
  friend auto operator<=>(const WeightsKind&, const WeightsKind&) = default;
};

// A watcher of the weights of one job. OnWeights must not block.
class WeightsWatcher {
 public:
  virtual ~WeightsWatcher() = default;
  virtual void OnWeights(std::shared_ptr<const HeldWeights> weights) = 0;
};

// The newest version of each kind of weights that has a watcher, requested from the workers. A
// version is memory; that of a worker of this host is mapped without copying. Readers may still
// hold older versions. While kMaxAlive versions of a kind are alive, newer ones are refused, except
// the last of an attempt. Without a watcher, none is kept or published.
//
// Owner: the daemon. Threads: any. Holds no lock while it calls a watcher or the pool.
class WeightsHub {
 public:
  static constexpr int kMaxAlive = 8;

  // `socket` is the path of the socket that takes versions of this host's workers.
  WeightsHub(WorkerPool* pool, const JobView* view, std::string socket)
      : pool_(pool), view_(view), socket_(std::move(socket)) {}

  // Adds a watcher, which gets the newest version if there is one. Call Request afterwards.
  void Add(const std::string& job_id, WeightsKind kind, double interval_seconds,
           const std::shared_ptr<WeightsWatcher>& watcher);
  // Removes a watcher. Call Request afterwards.
  void Remove(const std::string& job_id, const WeightsWatcher* watcher);
  // Requests from the worker of a job the kinds that its watchers now read. Only one thread may
  // call it, so that the last request is the newest.
  void Request(const std::string& job_id);

  // Returns FAILED_PRECONDITION if no watcher waits for a version or its attempt is over.
  // Transports call it before they receive its file.
  absl::Status CheckWanted(const training::v1::PublishedWeights& weights);
  // Takes a version from a worker, or returns why it is refused: as CheckWanted;
  // FAILED_PRECONDITION if it is not after the newest; INVALID_ARGUMENT if the file is not as
  // described; RESOURCE_EXHAUSTED if readers hold too many versions.
  absl::Status Put(training::v1::PublishedWeights weights, std::unique_ptr<MemoryFile> file);
  // Returns the version with that key; null if it is gone.
  std::shared_ptr<const HeldWeights> Find(const std::string& key) const;

  const std::string& socket() const { return socket_; }

 private:
  struct Watched {
    double interval_seconds = 0;
    std::shared_ptr<WeightsWatcher> watcher;
  };
  struct Kind {
    std::vector<Watched> watchers;
    std::shared_ptr<const HeldWeights> newest;
    std::vector<std::weak_ptr<const HeldWeights>> held;  // Versions that may still be alive.
  };
  using Kinds = std::map<WeightsKind, Kind>;

  absl::Status CheckAttempt(const training::v1::PublishedWeights& weights) const;
  absl::Status Keep(const std::shared_ptr<const HeldWeights>& held, Kind& kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns null if there is no watcher of that kind.
  Kind* FindKind(const training::v1::PublishedWeights& weights)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerPool* const pool_;
  const JobView* const view_;
  const std::string socket_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Kinds> jobs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace genesis
