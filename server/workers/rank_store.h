#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// A `RankStore` is the key-value store by which the ranks of one claim find each other: what
// torch.distributed's TCPStore is to torchrun. Operations come over the ranks' streams, whose
// callers are known, so no stranger can read or write it. Sets and counts may be told again, for a
// daemon that was restarted learns them anew; gets wait for their keys.
//
// Owner: WorkerTable. Failure: an answer with an error where the store would grow beyond its
// bounds, or once the claim is over (Close).
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

  // Returns the answers that can be given now: to the request, to gets that waited for it, or none.
  Answers Handle(int rank, const training::v1::StoreRequest& request);
  // No key will come any more, says `why`: answers every get that waits, and each later operation.
  Answers Close(const std::string& why);
  // The rank's stream has ended. It asks again for all that it still wants.
  void Forget(int rank);

 private:
  struct Wait {
    int rank = 0;
    int64_t id = 0;
    training::v1::StoreGet get;
  };

  // "" or why it is refused.
  std::string Set(const std::string& key, const std::string& value);
  std::string Add(int rank, const training::v1::StoreAdd& add, int64_t& sum);
  bool HasAll(const training::v1::StoreGet& get) const;
  training::v1::StoreResponse Read(int64_t id, const training::v1::StoreGet& get) const;
  void AnswerWaits(Answers& answers);

  std::map<std::string, std::string> values_;
  std::map<std::string, std::map<int, int64_t>> counts_;  // By key and rank.
  size_t bytes_ = 0;
  std::vector<Wait> waits_;
  std::string closed_;  // Why; empty while it is open.
};

// The stores of all jobs of several ranks, one for the newest claim of each.
//
// Owner: WorkerTable.
class RankStores {
 public:
  // As RankStore::Handle; nothing for a claim that is over.
  RankStore::Answers Handle(const std::string& job_id, int64_t claim, int rank,
                            const training::v1::StoreRequest& request);
  // As RankStore::Close, of the newest claim.
  RankStore::Answers Close(const std::string& job_id, const std::string& why);
  void Forget(const std::string& job_id, int rank);
  // No worker holds the job any more.
  void Remove(const std::string& job_id) { stores_.erase(job_id); }

 private:
  struct Store {
    int64_t claim = 0;
    RankStore store;
  };
  std::map<std::string, Store> stores_;  // By job.
};

}  // namespace genesis
