#include "trainer/distributed/shared_memory_transport.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
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

// All of them may be the same memory.
void Add(const float* a, const float* b, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreLanes(LoadLanes(a + i) + LoadLanes(b + i), to + i);
  for (; i < count; ++i) to[i] = a[i] + b[i];
}

using Block = std::array<float, kBlock>;

// The numbers as float32: where they are, or in `room`.
template <typename T>
const float* Floats(const T* from, int64_t count, Block& room) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    for (int64_t i = 0; i < count; ++i) room[i] = static_cast<float>(from[i]);
    return room.data();
  }
}

template <typename T>
void Round(const float* from, int64_t count, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
  }
}

// The elements of all ranks, and where their sum goes.
template <typename T>
struct Terms {
  std::vector<const T*> from;
  std::vector<T*> to;
};

// In the order of the ranks, so that all who make a sum come to the same bits.
template <typename T>
void SumBlock(const Terms<T>& terms, int64_t begin, int64_t count) {
  Block sum, room;
  const float* total = Floats(terms.from.front() + begin, count, sum);
  for (size_t rank = 1; rank < terms.from.size(); ++rank) {
    Add(total, Floats(terms.from[rank] + begin, count, room), count, sum.data());
    total = sum.data();
  }
  for (T* const to : terms.to) Round(total, count, to + begin);
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
  switch (own.buffer.scalar_type()) {
    case at::kHalf:
      Sum<at::Half>(own);
      break;
    case at::kBFloat16:
      Sum<at::BFloat16>(own);
      break;
    default:
      Sum<float>(own);
  }
  own.reduced = true;
  memory_->Set(ReducedCounter(bucket), own.begun);
}

template <typename T>
void SharedMemoryTransport::Sum(const Bucket& bucket) const {
  Terms<T> terms;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    T* const memory = reinterpret_cast<T*>(memory_->region(rank) + bucket.offset);
    terms.from.push_back(memory);
    if (!bucket.scattered || rank == ranks_.rank()) terms.to.push_back(memory);
  }
  for (const auto& [begin, end] : bucket.own) {
    at::parallel_for(begin, end, kGrain, [&](int64_t from, int64_t to) {
      for (int64_t at = from; at < to; at += kBlock) {
        SumBlock(terms, at, std::min(kBlock, to - at));
      }
    });
  }
}

void SharedMemoryTransport::AwaitAll(size_t counter, uint32_t value, const char* doing) {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    const std::string fault = memory_->Await(rank, counter, value, ranks_.options().timeout);
    if (!fault.empty()) ranks_.Fail(doing, rank, fault);
  }
}

}  // namespace genesis
