#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/part_of.h"

namespace genesis {

// A flat buffer whose sum over the ranks is made in one piece.
struct BucketSize {
  int64_t elements = 0;
  at::ScalarType type = at::kFloat;
};

// One gradient in a bucket that is scattered. Elements of the bucket.
struct ScatteredGradient {
  int64_t begin = 0;
  IndexRange own;     // Whose sum this rank makes.
  bool lent = false;  // It stays where it is: Lend names it before each Begin.
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

  // From now on a rank finds the sums of its own elements in `sums` (float32, as large as the
  // bucket), and none in the bucket: reduce-scatter. All ranks name the same gradients, each with
  // elements of its own. Lent gradients are multiplied by `factor` first. Requires common().
  virtual void Scatter(size_t /*bucket*/, std::vector<ScatteredGradient> /*gradients*/,
                       at::Tensor /*sums*/, float /*factor*/) {}

  // Why gradients cannot be lent, the same on all ranks; empty where they can.
  virtual std::string why_not_lent() const { return "no memory is shared"; }
  // Before the bucket begins: `gradient` (float32, dense) is the one there. It is not written to
  // before TakeBack, which requires that all ranks have awaited the bucket.
  virtual void Lend(size_t /*bucket*/, int64_t /*begin*/, at::Tensor /*gradient*/) {}
  virtual void TakeBack() {}

  // Memory that all ranks map, bytes that were zeros at first; undefined where they share none.
  virtual at::Tensor common() const { return {}; }
  // Returns once all ranks are here. Requires that they share memory.
  virtual void Meet() {}
};

}  // namespace genesis
