#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/worker/rank_store_client.h"

namespace genesis {

// The store of a claim as a c10d::Store, for ranks that the daemon started. Implements only the
// operations that the rendezvous needs; keys cannot be deleted.
//
// Owner: RankGroup. Threads: any. Failure: c10::DistStoreError with the client's message.
class DaemonStore : public c10d::Store {
 public:
  DaemonStore(std::shared_ptr<RankStoreClient> client, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), client_(std::move(client)) {}

  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  const std::shared_ptr<RankStoreClient> client_;
};

}  // namespace genesis
