#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "c10/core/Event.h"
#include "genesis/training/v1/distributed.pb.h"
#include "trainer/distributed/bucket_transport.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// A `GradientReducer` averages gradients and loss, and combines control flags, over the ranks.
// Buckets hold gradients in the order of a backward pass, the last parameters first (Li et al.,
// PyTorch Distributed, VLDB 2020). A complete bucket is exchanged while the pass continues, in 16
// bits if the job compresses gradients. NCCL exchanges buckets between GPUs (on_device()), and the
// host waits only for the other ranks. Without NCCL, a bucket of a GPU goes through host memory.
//
// If the ranks have common memory, they also share the update, and each has the means of only its
// part of each parameter (PartOf); the rest of memory() is undefined (reduce-scatter). Large
// gradients stay where the backward pass wrote them if other ranks can read them there.
//
// In a step, Put is called for each gradient, in any order, then Finish. A CUDA graph captures a
// step that ends in Reduce, and each replay needs a call of Agree.
//
// Owner: the training session; the ranks outlive it. Threads: one at a time. Failure: RunFailure
// of the ranks.
class GradientReducer {
 public:
  // `masters` are the parameters in float32, on the device and dense in memory, the same on all
  // ranks. Requests `common` additional bytes of common memory.
  GradientReducer(RankGroup& ranks, const std::vector<at::Tensor>& masters,
                  const training::v1::DistributedSpec& spec, size_t common = 0);

  // Stores the gradient of a parameter, in any format; undefined counts as zeros. Callers must not
  // write to `gradient` before Finish returns.
  void Put(size_t parameter, const at::Tensor& gradient);
  // Call after all gradients were put. Sets memory() to the means over the ranks (of this rank's
  // parts), sums `arrived` (float32 [parameters] on the CPU), agrees on the control flags of the
  // ranks, and returns the mean of the loss. Sync: waits for the device unless on_device().
  at::Tensor Finish(const at::Tensor& loss, const at::Tensor& arrived);
  // The gradients: float32, one per parameter, with its strides. After Finish the content belongs
  // to the caller until the next step.
  const std::vector<at::Tensor>& memory() const { return memory_; }

  // Returns whether the device exchanges gradients by itself. Only then are the two halves of
  // Finish called separately.
  bool on_device() const { return transport_->on_device(); }
  // Runs the device's half. Copies the arrivals of the last finished step into `arrived`.
  at::Tensor Reduce(const at::Tensor& loss, const at::Tensor& arrived);
  // Runs the hosts' half of a step whose gradients arrive as in the last finished step.
  void Agree();
  // Resets the state after an interrupted step.
  void Restart();

  // The memory common to all ranks, in bytes; undefined if they share none.
  at::Tensor common() const { return transport_->common(); }
  // Returns once all ranks have called it. Requires common().
  void Meet();

  // Calls RankGroup::Fetch.
  at::Tensor Fetch(const at::Tensor& tensor) { return ranks_.Fetch(tensor); }

  // The norms of the means over the ranks, still scaled: float32 [parameters], on the device. On
  // CPUs they are computed from the norms of the ranks' parts (PartOf) of each parameter, so that
  // all transports give the same bits.
  at::Tensor Norms() const;

  // Returns whether compression carries its rounding errors over to the next step.
  bool has_residuals() const { return error_feedback_; }
  // Drops the carried rounding errors: at each checkpoint, so that a resumed job continues like
  // this one, and when the loss scale changes, because they are scaled by it.
  void DropResiduals();
  // Drops the rounding errors if `skipped` (float32, no dimensions, on the device) is not 0,
  // because no update used the gradients of a skipped step. Does not wait for a GPU.
  void DropResidualsWhere(const at::Tensor& skipped);

  // A text for the log: "2 buckets, 24.1 MiB, by shared memory".
  const std::string& description() const { return description_; }

 private:
  struct Bucket {
    size_t missing = 0;  // Gradients of this step that are not ready yet.
    std::vector<size_t> parameters;
    at::Tensor flat;                 // float32, on the device; memory() consists of views of it.
    at::Tensor residual;             // float32: rounding errors of earlier steps.
    std::optional<c10::Event> sent;  // Marks the end of the copy from a GPU to the host.
  };

  std::vector<BucketSize> PlanBuckets(const std::vector<at::Tensor>& masters);
  void PlaceControl(int64_t end, int64_t parameters);
  void CutMemory(const std::vector<at::Tensor>& masters);
  at::Tensor Cut(const at::Tensor& flat, size_t parameter, const at::Tensor& like) const;
  // Returns whether gradients are copied to the transport's memory.
  bool travels() const { return compressed_ || (on_gpu_ && !on_device()); }
  void WriteFlags();
  void ReadFlags();
  at::Tensor Exchange(const at::Tensor& loss);
  void Scatter();
  bool Lends(size_t parameter) const;
  void Lend(size_t parameter, const at::Tensor& gradient);
  void CutParts();
  void MarkReady(size_t parameter);
  void Pack(size_t number);
  // Begins complete buckets in order; the last, which may hold flags, only if `all` or scattered_.
  void BeginReady(bool all);
  template <typename Wait>
  void NoteWait(const Wait& wait);
  void Unpack(size_t number);

  RankGroup& ranks_;
  const at::Tensor share_;  // Factor applied to gradients first: float32, on the CPU.
  const bool on_gpu_;
  const bool compressed_;
  const bool error_feedback_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;   // Per parameter.
  std::vector<int64_t> offset_of_;  // Offset in that bucket.
  std::unique_ptr<BucketTransport> transport_;
  at::Tensor loss_;     // float32, no dimensions, in the transport's memory.
  at::Tensor control_;  // Flags, then arrival counts; float32, on the CPU.
  size_t control_bucket_ = 0;
  bool scattered_ = false;
  bool lends_ = false;  // Large gradients are read in place.
  // The parts of memory() (PartOf) by rank and parameter, for the norms; if scattered, only this
  // rank's parts. Empty on GPUs.
  std::vector<std::vector<at::Tensor>> parts_;
  at::Tensor norms_;    // float32 [ranks, parameters]: norms of all parts; after control_.
  at::Tensor arrived_;  // Sum over all ranks in the last finished step.
  std::vector<at::Tensor> memory_;
  std::vector<at::Tensor> places_;  // Destinations of Put: memory_ unless buckets are scattered.
  size_t next_ = 0;                 // Next bucket to begin.
  std::string description_;
};

}  // namespace genesis
