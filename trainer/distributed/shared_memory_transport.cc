#include "trainer/distributed/shared_memory_transport.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/part_of.h"

namespace genesis {
namespace {

// Each bucket begins on a line of the cache.
constexpr size_t kLine = 64;
// Elements that are summed at a time: they stay in the first cache.
constexpr int64_t kBlock = 2048;
// Below it a second thread costs more than it brings.
constexpr int64_t kGrain = 65536;

size_t Bytes(const BucketSize& bucket) {
  const size_t bytes = static_cast<size_t>(bucket.elements) * c10::elementSize(bucket.type);
  return (bytes + kLine - 1) / kLine * kLine;
}

// Two ranks are the most frequent case, and one walk.
void SumOfTwo(float* __restrict a, float* __restrict b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}

template <typename T>
void SumBlock(const std::vector<T*>& ranks, int64_t begin, int64_t count) {
  std::array<float, kBlock> sum;
  const T* const first = ranks.front() + begin;
  for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<float>(first[i]);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const T* const own = ranks[rank] + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<float>(own[i]);
  }
  for (T* const to : ranks) {
    for (int64_t i = 0; i < count; ++i) to[begin + i] = static_cast<T>(sum[i]);
  }
}

template <typename T>
void Sum(const std::vector<std::byte*>& memories, int64_t begin, int64_t end) {
  std::vector<T*> ranks;
  for (std::byte* const memory : memories) ranks.push_back(reinterpret_cast<T*>(memory));
  at::parallel_for(begin, end, kGrain, [&](int64_t from, int64_t to) {
    if constexpr (std::is_same_v<T, float>) {
      if (ranks.size() == 2) return SumOfTwo(ranks[0] + from, ranks[1] + from, to - from);
    }
    for (int64_t at = from; at < to; at += kBlock) SumBlock(ranks, at, std::min(kBlock, to - at));
  });
}

}  // namespace

SharedMemory::Size SharedMemoryTransport::SizeOf(const std::vector<BucketSize>& buckets, int ranks,
                                                 size_t common) {
  SharedMemory::Size size{
      .ranks = ranks, .counters = 2 * buckets.size() + 2, .bytes = 0, .common = common};
  for (const BucketSize& bucket : buckets) size.bytes += Bytes(bucket);
  return size;
}

SharedMemoryTransport::SharedMemoryTransport(RankGroup& ranks, std::unique_ptr<SharedMemory> memory,
                                             const std::vector<BucketSize>& buckets, size_t common)
    : ranks_(ranks),
      memory_(std::move(memory)),
      common_(at::from_blob(
          memory_->common(), {static_cast<int64_t>(common)}, [held = memory_](void*) {},
          at::dtype(at::kByte))) {
  size_t offset = 0;
  for (const BucketSize& bucket : buckets) {
    buckets_.push_back({.buffer = at::from_blob(memory_->region(ranks_.rank()) + offset,
                                                {bucket.elements}, at::dtype(bucket.type)),
                        .offset = offset});
    offset += Bytes(bucket);
  }
}

void SharedMemoryTransport::Begin(size_t bucket) {
  buckets_[bucket].reduced = false;
  memory_->Set(BegunCounter(bucket), ++buckets_[bucket].begun);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!buckets_[i].reduced && AllHaveBegun(i)) Reduce(i);
  }
}

void SharedMemoryTransport::Await(size_t bucket) {
  const uint32_t begun = buckets_[bucket].begun;
  if (!buckets_[bucket].reduced) {
    AwaitAll(BegunCounter(bucket), begun, "add up gradients");
    Reduce(bucket);
  }
  AwaitAll(ReducedCounter(bucket), begun, "add up gradients");
}

void SharedMemoryTransport::Meet() {
  ++met_;
  memory_->Set(MetCounter(), met_);
  AwaitAll(MetCounter(), met_, "update their weights");
}

bool SharedMemoryTransport::AllHaveBegun(size_t bucket) const {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (memory_->counter(rank, BegunCounter(bucket)) != buckets_[bucket].begun) return false;
  }
  return true;
}

void SharedMemoryTransport::Reduce(size_t bucket) {
  Bucket& own = buckets_[bucket];
  std::vector<std::byte*> memories;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    memories.push_back(memory_->region(rank) + own.offset);
  }
  const auto [begin, end] = PartOf(own.buffer.numel(), ranks_.rank(), ranks_.size());
  switch (own.buffer.scalar_type()) {
    case at::kHalf:
      Sum<at::Half>(memories, begin, end);
      break;
    case at::kBFloat16:
      Sum<at::BFloat16>(memories, begin, end);
      break;
    default:
      Sum<float>(memories, begin, end);
  }
  own.reduced = true;
  memory_->Set(ReducedCounter(bucket), own.begun);
}

void SharedMemoryTransport::AwaitAll(size_t counter, uint32_t value, const char* doing) {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    const std::string fault = memory_->Await(rank, counter, value, ranks_.options().timeout);
    if (!fault.empty()) ranks_.Fail(doing, rank, fault);
  }
}

}  // namespace genesis
