#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/distributed/bucket_transport.h"
#include "trainer/distributed/peer_memory.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/distributed/shared_memory.h"

namespace genesis {

// All-reduce of ranks that share a host. The buckets of all ranks are in memory that all of them
// map. Once all have begun a bucket, each rank sums its part of it in rank order and writes the sum
// into the buckets of all: reduce-scatter and all-gather in one pass, with neither copies nor
// sockets. A scattered bucket skips the all-gather. Lent gradients stay in their rank's memory,
// with their address in the bucket; other ranks read them in place (PeerMemory). There is no
// background thread: a rank does its part between its own layers if the other ranks are ahead,
// otherwise when it awaits the bucket. Sums are computed in float32.
class SharedMemoryTransport : public BucketTransport {
 public:
  // Requires memory of SizeOf(buckets, ranks.size(), common).
  SharedMemoryTransport(RankGroup& ranks, std::unique_ptr<SharedMemory> memory,
                        const std::vector<BucketSize>& buckets, size_t common);

  static SharedMemory::Size SizeOf(const std::vector<BucketSize>& buckets, int ranks,
                                   size_t common);

  const at::Tensor& buffer(size_t bucket) const override { return buckets_[bucket].buffer; }
  void Begin(size_t bucket) override;
  void Await(size_t bucket) override;
  void Scatter(size_t bucket, std::vector<ScatteredGradient> gradients, at::Tensor sums,
               float factor) override;
  std::string why_not_lent() const override { return peers_.why_not(); }
  void Lend(size_t bucket, int64_t begin, at::Tensor gradient) override;
  void TakeBack() override { lent_.clear(); }
  at::Tensor common() const override { return common_; }
  void Meet() override;

 private:
  struct Bucket {
    at::Tensor buffer;                         // This rank's buffer.
    size_t offset = 0;                         // Offset in bytes in the region of each rank.
    uint32_t begun = 0;                        // Number of times it has begun.
    bool reduced = true;                       // Whether this rank has summed its part this round.
    std::vector<ScatteredGradient> gradients;  // Set if the bucket is scattered.
    at::Tensor sums;
    float factor = 1;

    bool scattered() const { return sums.defined(); }
  };

  size_t BegunCounter(size_t bucket) const { return bucket; }
  size_t ReducedCounter(size_t bucket) const { return buckets_.size() + bucket; }
  // Two counters alternate: a rank may reach the next Meet before another rank has left this one.
  size_t MetCounter() const { return 2 * buckets_.size() + met_ % 2; }
  bool AllHaveBegun(size_t bucket) const;
  void Reduce(size_t bucket);
  template <typename T>
  std::vector<T*> Elements(const Bucket& bucket) const;
  template <typename T>
  void SumAll(const Bucket& bucket) const;
  void SumScattered(const Bucket& bucket) const;
  void SumLent(const Bucket& bucket, const ScatteredGradient& gradient) const;
  void AwaitAll(size_t counter, uint32_t value, const char* doing);

  RankGroup& ranks_;
  // Shared with the tensors in it.
  const std::shared_ptr<SharedMemory> memory_;
  const at::Tensor common_;
  std::vector<Bucket> buckets_;
  const PeerMemory peers_;
  std::vector<at::Tensor> lent_;
  uint32_t met_ = 0;  // Number of meetings.
};

}  // namespace genesis
