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

// The all-reduce of ranks that share a host. The buckets of all ranks lie in memory that all of
// them map. Once all have begun a bucket, each rank adds up its part of it, in the order of the
// ranks, and writes the sum into the buckets of all: reduce-scatter and all-gather in one pass,
// with neither copies nor sockets; a bucket that is scattered ends with the first. Gradients that
// are lent lie in memory of their rank, on large pages, and their address in the bucket; others
// read it there (PeerMemory). No thread of its own: a rank does its part between its own layers
// where the others are ahead, else when it awaits the bucket. Sums are made in float32.
class SharedMemoryTransport : public BucketTransport {
 public:
  // The memory has to be of SizeOf(buckets, ranks.size(), common).
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
    at::Tensor buffer;                         // This rank's.
    size_t offset = 0;                         // In the region of each rank. Bytes.
    uint32_t begun = 0;                        // How often.
    bool reduced = true;                       // This rank's elements, of the newest time.
    std::vector<ScatteredGradient> gradients;  // Where it is scattered.
    at::Tensor sums;
    float factor = 1;

    bool scattered() const { return sums.defined(); }
  };

  size_t BegunCounter(size_t bucket) const { return bucket; }
  size_t ReducedCounter(size_t bucket) const { return buckets_.size() + bucket; }
  // Two in turn: a rank may be at the next Meet before another has seen that it was at this one.
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
  // Shared with the tensors that lie there.
  const std::shared_ptr<SharedMemory> memory_;
  const at::Tensor common_;
  std::vector<Bucket> buckets_;
  const PeerMemory peers_;
  std::vector<at::Tensor> lent_;
  uint32_t met_ = 0;  // How often.
};

}  // namespace genesis
