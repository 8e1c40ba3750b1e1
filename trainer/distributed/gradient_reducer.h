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

// The mean of gradients, loss and control flags over the ranks. Gradients lie in buckets in the
// order in which a backward pass makes them, the last parameters first (Li et al., PyTorch
// Distributed, VLDB 2020); a bucket that is complete is exchanged while the pass goes on, in 16
// bits where the job compresses gradients. Between GPUs NCCL exchanges them (on_device()), and the
// host waits for the others alone; elsewhere a bucket of a GPU goes through memory of the host.
//
// Where the ranks have common memory they share out the update, too, and each has the means of its
// part of each parameter alone (PartOf): memory() is anything elsewhere (reduce-scatter). Large
// gradients stay where the backward pass made them, where other ranks can read them there.
//
// A step: each gradient is put, in any order; Finish ends it. A CUDA graph captures a step that
// ends in Reduce, and Agree goes with each replay.
//
// Owner: the training session; the ranks outlive it. Threads: one at a time. Failure: RunFailure
// of the ranks.
class GradientReducer {
 public:
  // `masters` are the parameters in float32, on the device and dense in memory; all ranks have the
  // same. `common` bytes are asked for besides.
  GradientReducer(RankGroup& ranks, const std::vector<at::Tensor>& masters,
                  const training::v1::DistributedSpec& spec, size_t common = 0);

  // The gradient of a parameter, in any format; undefined counts as zeros. It is not written to
  // before Finish.
  void Put(size_t parameter, const at::Tensor& gradient);
  // Once all were put: makes memory() the means over the ranks (of this one's parts), adds up
  // `arrived` (float32 [parameters] on the CPU), agrees on the control flags of the ranks, and
  // returns the mean of the loss. Sync: waits for the device, but for on_device().
  at::Tensor Finish(const at::Tensor& loss, const at::Tensor& arrived);
  // float32, one for each parameter, with its strides. What Finish left there is the caller's until
  // the next step.
  const std::vector<at::Tensor>& memory() const { return memory_; }

  // Whether the device exchanges gradients by itself. The two halves of Finish are for it alone.
  bool on_device() const { return transport_->on_device(); }
  // The half that the device does. `arrived` becomes that of the last step that was finished.
  at::Tensor Reduce(const at::Tensor& loss, const at::Tensor& arrived);
  // The half that the hosts do, where the same gradients arrive as in the last finished step.
  void Agree();
  // Forgets what is ready of a step that was broken off.
  void Restart();

  // The memory common to all ranks, bytes; undefined where they share none.
  at::Tensor common() const { return transport_->common(); }
  // Returns once all ranks are here. Requires common().
  void Meet();

  // As RankGroup.Fetch.
  at::Tensor Fetch(const at::Tensor& tensor) { return ranks_.Fetch(tensor); }

  // The norms of the means over the ranks, scaled as these are: float32 [parameters], on the
  // device. On CPUs they are made of those of the ranks' parts (PartOf) of each parameter, so that
  // all ways come to the same bits.
  at::Tensor Norms() const;

  // Whether compression carries its rounding errors over to the next step.
  bool has_residuals() const { return error_feedback_; }
  // Drops what is carried over: at each checkpoint, so that a resumed job goes on as this one, and
  // where the loss scale changes, which it is multiplied by.
  void DropResiduals();
  // The same after a step that was skipped, where `skipped` (float32, no dimensions, on the device)
  // is not 0: they are of gradients that no update had. Does not wait for a GPU.
  void DropResidualsWhere(const at::Tensor& skipped);

  // "2 buckets, 24.1 MiB, by shared memory".
  const std::string& description() const { return description_; }

 private:
  struct Bucket {
    size_t missing = 0;  // Gradients not yet ready, in this step.
    std::vector<size_t> parameters;
    at::Tensor flat;                 // float32, on the device: what memory() is cut from.
    at::Tensor residual;             // float32: rounding errors of the steps before.
    std::optional<c10::Event> sent;  // From a GPU to the host.
  };

  std::vector<BucketSize> PlanBuckets(const std::vector<at::Tensor>& masters);
  void PlaceControl(int64_t end, int64_t parameters);
  void CutMemory(const std::vector<at::Tensor>& masters);
  at::Tensor Cut(const at::Tensor& flat, size_t parameter, const at::Tensor& like) const;
  // Whether gradients are copied to the transport's memory.
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
  // Begins the buckets that are complete, in their order, but for the last one: flags go with it.
  void BeginReady(bool all);
  template <typename Wait>
  void NoteWait(const Wait& wait);
  void Unpack(size_t number);

  RankGroup& ranks_;
  const at::Tensor share_;  // What gradients are multiplied by first: float32, on the CPU.
  const bool on_gpu_;
  const bool compressed_;
  const bool error_feedback_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;   // Of each parameter.
  std::vector<int64_t> offset_of_;  // Within it.
  std::unique_ptr<BucketTransport> transport_;
  at::Tensor loss_;     // float32, no dimensions, where the transport makes sums.
  at::Tensor control_;  // float32, on the CPU: flags, arrived. Behind the loss, or apart from it.
  size_t control_bucket_ = 0;
  bool scattered_ = false;
  bool lends_ = false;  // Large gradients are read where they are.
  // The parts of memory() (PartOf) by rank and parameter, that norms are made of; where it is
  // scattered, this rank's alone. On CPUs.
  std::vector<std::vector<at::Tensor>> parts_;
  at::Tensor norms_;    // float32 [ranks, parameters]: those of all parts; behind control_.
  at::Tensor arrived_;  // Of all ranks, in the last step that was finished.
  std::vector<at::Tensor> memory_;
  std::vector<at::Tensor> places_;  // Where gradients are put: memory_ unless they are scattered.
  size_t next_ = 0;                 // Bucket to begin.
  std::string description_;
};

}  // namespace genesis
