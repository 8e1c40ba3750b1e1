#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/part_of.h"

namespace genesis {

// A flat buffer whose sum over the ranks is made in one piece.
struct BucketSize {
  int64_t elements = 0;
  at::ScalarType type = at::kFloat;
};

// All-reduce of a fixed list of buckets, again and again: each rank fills a bucket, begins it, and
// finds the sum over the ranks in it once it was awaited: by this thread, or on a GPU by the
// current stream. All ranks begin them in the same order, and each once before it is awaited.
//
// Owner: a GradientReducer. Threads: one at a time. Failure: RunFailure where another rank has
// ended, or is silent for longer than RankOptions.timeout.
class BucketTransport {
 public:
  virtual ~BucketTransport() = default;

  // Contiguous; stays where it is. Free to be written between Await and Begin: by the CPU, or,
  // where it lies on a GPU, by what the current stream is given.
  virtual const at::Tensor& buffer(size_t bucket) const = 0;
  virtual void Begin(size_t bucket) = 0;
  virtual void Await(size_t bucket) = 0;

  // Whether the device makes the sums by itself, and the host waits for none of them.
  virtual bool on_device() const { return false; }

  // From now on a rank finds the sum of the bucket in these of its elements alone, and anything in
  // the others: reduce-scatter. Each rank names elements of its own, which none of the others reads
  // or writes before all have met. Requires common().
  virtual void Scatter(size_t /*bucket*/, std::vector<IndexRange> /*own*/) {}

  // Memory that all ranks map, bytes that were zeros at first; undefined where they share none.
  virtual at::Tensor common() const { return {}; }
  // Returns once all ranks are here. Requires that they share memory.
  virtual void Meet() {}
};

}  // namespace genesis
