#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/optim/part_of.h"

namespace genesis {

// A flat buffer that is summed over the ranks as a whole.
struct BucketSize {
  int64_t elements = 0;
  at::ScalarType type = at::kFloat;
};

// One gradient in a scattered bucket. Positions are in elements of the bucket.
struct ScatteredGradient {
  int64_t begin = 0;
  IndexRange own;     // The part that this rank sums.
  bool lent = false;  // If set, the gradient stays in the memory passed to Lend.
};

// Repeated all-reduce of a fixed list of buckets. Each rank fills a bucket and begins it. After
// Await, by this thread or on a GPU by the current stream, the bucket holds the sum over the ranks.
// All ranks begin the buckets in the same order, and each exactly once before it is awaited.
//
// Owner: a GradientReducer. Threads: one at a time. Failure: RunFailure if another rank has ended,
// or is silent for longer than RankOptions.timeout.
class BucketTransport {
 public:
  virtual ~BucketTransport() = default;

  // The buffer of a bucket, contiguous and at a fixed address. May be written between Await and
  // Begin: by the CPU, or on a GPU by work in the current stream.
  virtual const at::Tensor& buffer(size_t bucket) const = 0;
  virtual void Begin(size_t bucket) = 0;
  virtual void Await(size_t bucket) = 0;

  // Returns whether the device computes the sums by itself, so that the host waits for none.
  virtual bool on_device() const { return false; }

  // Writes, from now on, the sums of this rank's own elements to `sums` (float32, as large as the
  // bucket) instead of the bucket: reduce-scatter. All ranks pass the same gradients, each with its
  // own elements. Lent gradients are first multiplied by `factor`. Requires common().
  virtual void Scatter(size_t /*bucket*/, std::vector<ScatteredGradient> /*gradients*/,
                       at::Tensor /*sums*/, float /*factor*/) {}

  // Returns why gradients cannot be lent, the same on all ranks; empty if they can.
  virtual std::string why_not_lent() const { return "no memory is shared"; }
  // Sets the gradient at `begin` (float32, dense) before the bucket begins. It must not be written
  // before TakeBack, which requires that all ranks have awaited the bucket.
  virtual void Lend(size_t /*bucket*/, int64_t /*begin*/, at::Tensor /*gradient*/) {}
  virtual void TakeBack() {}

  // Returns memory mapped by all ranks, initially zero bytes; undefined if they share none.
  virtual at::Tensor common() const { return {}; }
  // Returns once all ranks have called it. Requires that they share memory.
  virtual void Meet() {}
};

}  // namespace genesis
