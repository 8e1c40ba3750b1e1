#include "trainer/distributed/shared_memory_transport.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

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

// GCC makes no vectors of a loop whose count it does not know, unless it is written with them.
using Lanes = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = sizeof(Lanes) / sizeof(float);

Lanes LoadLanes(const float* from) {
  Lanes values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}

void StoreLanes(Lanes values, float* to) { std::memcpy(to, &values, sizeof(values)); }

// Two ranks are the most frequent case, and one walk.
void SumOfTwo(float* a, float* b, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Lanes sum = LoadLanes(a + i) + LoadLanes(b + i);
    StoreLanes(sum, a + i);
    StoreLanes(sum, b + i);
  }
  for (; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

void AddTo(float* a, const float* b, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreLanes(LoadLanes(a + i) + LoadLanes(b + i), a + i);
  for (; i < count; ++i) a[i] += b[i];
}

// Elements of all ranks; the sum goes to one of them, or to all.
template <typename T>
struct Terms {
  std::vector<T*> from;
  std::vector<T*> to;
};

template <typename T>
void SumBlock(const Terms<T>& ranks, int64_t begin, int64_t count) {
  std::array<float, kBlock> sum;
  const T* const first = ranks.from.front() + begin;
  for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<float>(first[i]);
  for (size_t rank = 1; rank < ranks.from.size(); ++rank) {
    const T* const own = ranks.from[rank] + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<float>(own[i]);
  }
  for (T* const to : ranks.to) {
    for (int64_t i = 0; i < count; ++i) to[begin + i] = static_cast<T>(sum[i]);
  }
}

template <typename T>
void SumPart(const Terms<T>& ranks, int64_t from, int64_t to) {
  if constexpr (std::is_same_v<T, float>) {
    if (ranks.from.size() == 2) {
      float* const a = ranks.from[0] + from;
      float* const b = ranks.from[1] + from;
      if (ranks.to.size() == 2) return SumOfTwo(a, b, to - from);
      return ranks.to[0] == ranks.from[0] ? AddTo(a, b, to - from) : AddTo(b, a, to - from);
    }
  }
  for (int64_t at = from; at < to; at += kBlock) SumBlock(ranks, at, std::min(kBlock, to - at));
}

// `memories` of all ranks; the sums go to that of `own`, or to all without it.
template <typename T>
void Sum(const std::vector<std::byte*>& memories, std::optional<int> own,
         const std::vector<IndexRange>& elements) {
  Terms<T> ranks;
  for (std::byte* const memory : memories) ranks.from.push_back(reinterpret_cast<T*>(memory));
  ranks.to = own ? std::vector<T*>{ranks.from[static_cast<size_t>(*own)]} : ranks.from;
  for (const auto& [begin, end] : elements) {
    at::parallel_for(begin, end, kGrain,
                     [&](int64_t from, int64_t to) { SumPart(ranks, from, to); });
  }
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
                        .offset = offset,
                        .own = {PartOf(bucket.elements, ranks_.rank(), ranks_.size())}});
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
  if (!buckets_[bucket].scattered) {
    AwaitAll(ReducedCounter(bucket), begun, "add up gradients");
  }
}

void SharedMemoryTransport::Scatter(size_t bucket, std::vector<IndexRange> own) {
  buckets_[bucket].own = std::move(own);
  buckets_[bucket].scattered = true;
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
  const auto to = own.scattered ? std::optional(ranks_.rank()) : std::nullopt;
  switch (own.buffer.scalar_type()) {
    case at::kHalf:
      Sum<at::Half>(memories, to, own.own);
      break;
    case at::kBFloat16:
      Sum<at::BFloat16>(memories, to, own.own);
      break;
    default:
      Sum<float>(memories, to, own.own);
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
