#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A `RankStore` is the key-value store through which the ranks of one claim find each other, like
// torch.distributed's TCPStore with torchrun. Operations arrive on the ranks' authenticated
// streams, so no other process can access it. Sets and adds may be repeated, because a restarted
// daemon has lost them. A get may wait for its keys.
//
// Owner: WorkerTable. Failure: an operation that would exceed the bounds, or that arrives after
// Close, gets a response with an error.
class RankStore {
 public:
  static constexpr size_t kMaxKeyBytes = 512;
  static constexpr size_t kMaxValueBytes = size_t{1} << 20U;
  static constexpr size_t kMaxBytes = size_t{64} << 20U;
  static constexpr int kMaxKeysOfGet = 4096;
  static constexpr size_t kMaxWaits = 4096;

  struct Answer {
    int rank = 0;
    training::v1::StoreResponse response;
  };
  using Answers = std::vector<Answer>;

  // Returns the responses available now: to this request and to pending gets that
  // it completes. May be empty.
  Answers Handle(int rank, const training::v1::StoreRequest& request);
  // Closes the store for the reason `why`: fails all pending gets and all later operations.
  Answers Close(const std::string& why);
  // Drops the pending gets of a rank whose stream has ended. A rank that reattaches repeats them.
  void Forget(int rank);

 private:
  struct Wait {
    int rank = 0;
    int64_t id = 0;
    training::v1::StoreGet get;
  };

  // Returns "", or why the value is refused.
  std::string Set(const std::string& key, const std::string& value);
  std::string Add(int rank, const training::v1::StoreAdd& add, int64_t& sum);
  bool HasAll(const training::v1::StoreGet& get) const;
  training::v1::StoreResponse Read(int64_t id, const training::v1::StoreGet& get) const;
  void AnswerWaits(Answers& answers);

  std::map<std::string, std::string> values_;
  std::map<std::string, std::map<int, int64_t>> counts_;  // Keyed by key, then by rank.
  size_t bytes_ = 0;
  std::vector<Wait> waits_;
  std::string closed_;  // Why it was closed; empty while open.
};

// The rank stores of all multi-rank jobs, for the newest claim of each.
//
// Owner: WorkerTable.
class RankStores {
 public:
  // Same as RankStore::Handle. Returns nothing for a claim that is over.
  RankStore::Answers Handle(const std::string& job_id, int64_t claim, int rank,
                            const training::v1::StoreRequest& request);
  // Same as RankStore::Close, for the newest claim.
  RankStore::Answers Close(const std::string& job_id, const std::string& why);
  void Forget(const std::string& job_id, int rank);
  // Removes the store of a job that no worker holds any more.
  void Remove(const std::string& job_id) { stores_.erase(job_id); }

 private:
  struct Store {
    int64_t claim = 0;
    RankStore store;
  };
  std::map<std::string, Store> stores_;  // Keyed by job ID.
};

}  // namespace genesis
