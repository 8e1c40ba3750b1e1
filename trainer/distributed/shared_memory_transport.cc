#include "trainer/distributed/shared_memory_transport.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"

namespace genesis {
namespace {

// Each bucket begins on a cache line.
constexpr size_t kLine = 64;
// Elements summed at a time: they fit the L1 cache.
constexpr int64_t kBlock = 2048;
// Elements read from another rank at a time: they fit the L2 cache.
constexpr int64_t kRead = 32768;
// Below this size a second thread costs more than it saves.
constexpr int64_t kGrain = 65536;

size_t Bytes(const BucketSize& bucket) {
  const size_t bytes = static_cast<size_t>(bucket.elements) * c10::elementSize(bucket.type);
  return (bytes + kLine - 1) / kLine * kLine;
}

// GCC does not vectorize a loop of unknown count unless it is written with vectors.
using Lanes = float __attribute__((vector_size(16)));
constexpr int64_t kLanes = sizeof(Lanes) / sizeof(float);

Lanes LoadLanes(const float* from) {
  Lanes values;
  std::memcpy(&values, from, sizeof(values));
  return values;
}

void StoreLanes(Lanes values, float* to) { std::memcpy(to, &values, sizeof(values)); }

// Adds `count` numbers. The arguments may be the same memory.
void Add(const float* a, const float* b, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreLanes(LoadLanes(a + i) + LoadLanes(b + i), to + i);
  for (; i < count; ++i) to[i] = a[i] + b[i];
}

void Multiply(const float* from, float factor, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) StoreLanes(LoadLanes(from + i) * factor, to + i);
  for (; i < count; ++i) to[i] = from[i] * factor;
}

using Block = std::array<float, kBlock>;

// Returns the numbers as float32: in place, or converted into `room`.
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

// The elements of all ranks, and the destinations of their sum.
template <typename T>
struct Terms {
  std::vector<T*> from;
  std::vector<T*> to;
};

// Sums in rank order, so that all ranks compute the same bits.
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

template <typename T>
void Sum(const Terms<T>& terms, const IndexRange& elements) {
  at::parallel_for(elements.begin, elements.end, kGrain, [&](int64_t from, int64_t to) {
    for (int64_t at = from; at < to; at += kBlock) SumBlock(terms, at, std::min(kBlock, to - at));
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
          at::dtype(at::kByte))),
      peers_(ranks) {
  size_t offset = 0;
  for (const BucketSize& bucket : buckets) {
    buckets_.push_back({.buffer = at::from_blob(memory_->region(ranks_.rank()) + offset,
                                                {bucket.elements}, at::dtype(bucket.type)),
                        .offset = offset,
                        .gradients = {},
                        .sums = {}});
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
  if (!buckets_[bucket].scattered()) {
    AwaitAll(ReducedCounter(bucket), begun, "add up gradients");
  }
}

void SharedMemoryTransport::Scatter(size_t bucket, std::vector<ScatteredGradient> gradients,
                                    at::Tensor sums, float factor) {
  buckets_[bucket].gradients = std::move(gradients);
  buckets_[bucket].sums = std::move(sums);
  buckets_[bucket].factor = factor;
}

void SharedMemoryTransport::Lend(size_t bucket, int64_t begin, at::Tensor gradient) {
  const auto address = reinterpret_cast<uint64_t>(gradient.const_data_ptr<float>());
  std::memcpy(buckets_[bucket].buffer.mutable_data_ptr<float>() + begin, &address, sizeof(address));
  lent_.push_back(std::move(gradient));
}

void SharedMemoryTransport::Meet() {
  ++met_;
  memory_->Set(MetCounter(), met_);
  AwaitAll(MetCounter(), met_, "update weights");
}

bool SharedMemoryTransport::AllHaveBegun(size_t bucket) const {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (memory_->counter(rank, BegunCounter(bucket)) != buckets_[bucket].begun) return false;
  }
  return true;
}

void SharedMemoryTransport::Reduce(size_t bucket) {
  Bucket& own = buckets_[bucket];
  if (own.scattered()) {
    SumScattered(own);
  } else if (own.buffer.scalar_type() == at::kHalf) {
    SumAll<at::Half>(own);
  } else if (own.buffer.scalar_type() == at::kBFloat16) {
    SumAll<at::BFloat16>(own);
  } else {
    SumAll<float>(own);
  }
  own.reduced = true;
  memory_->Set(ReducedCounter(bucket), own.begun);
}

// Returns the elements by rank.
template <typename T>
std::vector<T*> SharedMemoryTransport::Elements(const Bucket& bucket) const {
  std::vector<T*> elements;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    elements.push_back(reinterpret_cast<T*>(memory_->region(rank) + bucket.offset));
  }
  return elements;
}

template <typename T>
void SharedMemoryTransport::SumAll(const Bucket& bucket) const {
  const std::vector<T*> elements = Elements<T>(bucket);
  Sum<T>({.from = elements, .to = elements},
         PartOf(bucket.buffer.numel(), ranks_.rank(), ranks_.size()));
}

void SharedMemoryTransport::SumScattered(const Bucket& bucket) const {
  const Terms<float> terms{.from = Elements<float>(bucket),
                           .to = {bucket.sums.mutable_data_ptr<float>()}};
  for (const ScatteredGradient& gradient : bucket.gradients) {
    if (gradient.lent) {
      SumLent(bucket, gradient);
    } else {
      Sum(terms, gradient.own);
    }
  }
}

// Sums like SumBlock, but lent gradients, times `factor`, at a different address in each rank.
void SharedMemoryTransport::SumLent(const Bucket& bucket, const ScatteredGradient& gradient) const {
  std::vector<uint64_t> addresses;
  for (const float* const place : Elements<float>(bucket)) {
    uint64_t& address = addresses.emplace_back();
    std::memcpy(&address, place + gradient.begin, sizeof(address));
  }
  float* const sums = bucket.sums.mutable_data_ptr<float>() + gradient.begin;
  at::parallel_for(
      gradient.own.begin - gradient.begin, gradient.own.end - gradient.begin, kGrain,
      [&](int64_t from, int64_t to) {
        const auto room = std::make_unique_for_overwrite<float[]>(kRead);
        for (int64_t at = from; at < to; at += kRead) {
          const int64_t count = std::min(kRead, to - at);
          for (int rank = 0; rank < ranks_.size(); ++rank) {
            const uint64_t address =
                addresses[static_cast<size_t>(rank)] + sizeof(float) * static_cast<size_t>(at);
            const float* term = reinterpret_cast<const float*>(address);
            if (rank != ranks_.rank()) {
              peers_.Read(rank, address, room.get(), sizeof(float) * static_cast<size_t>(count));
              term = room.get();
            }
            Multiply(term, bucket.factor, count, rank == 0 ? sums + at : room.get());
            if (rank > 0) Add(sums + at, room.get(), count, sums + at);
          }
        }
      });
}

void SharedMemoryTransport::AwaitAll(size_t counter, uint32_t value, const char* doing) {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    const SharedMemory::Reminder reminder{.tell = [&](double seconds) {
      ranks_.options().tell(
          absl::StrFormat("waiting for rank %d, silent for %.0f s", rank, seconds));
    }};
    const std::string fault =
        memory_->Await(rank, counter, value, ranks_.options().timeout, reminder);
    if (!fault.empty()) ranks_.Fail(doing, rank, fault);
  }
}

}  // namespace genesis
