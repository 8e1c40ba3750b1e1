#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/distributed/rank_place.h"

namespace genesis {

// The control flags of a rank, or of any of them, at the end of a step.
struct ControlFlags {
  bool stop = false;
  bool checkpoint = false;
  bool time_is_up = false;  // training.time_limit_seconds
  double seconds = 0;       // Of the step before; the mean over the ranks once it is heard.
};

// The ranks that train one job together, each on examples of its own, with the same weights
// (data-parallel training, as torch.nn.parallel.DistributedDataParallel). Ranks that decide alike
// make the same steps, so whatever a decision rests on is a figure of the group: gradients, loss
// and wishes travel in one all-reduce a step, the rest is told by rank 0. Made of c10d's
// ProcessGroupGloo and its store; what is on a GPU travels through host memory.
//
// Every method is called by all ranks, in the same order. Owner: the run's caller. Threads: one.
// Failure: RunFailure (FAILURE_CAUSE_WORKER_EXIT) when a rank ends, or is silent for half an hour.
class RankGroup {
 public:
  // Waits until all are there. Requires place.size > 1.
  explicit RankGroup(const RankPlace& place);
  // By a store that the ranks share already.
  RankGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  // The one that writes checkpoints and tells of the job.
  bool first() const { return place_.rank == 0; }

  // Takes effect with the next Average.
  void SetFlags(const ControlFlags& flags) { mine_ = flags; }
  // Agreed by all ranks at the last Average.
  const ControlFlags& agreed() const { return agreed_; }

  // Makes the gradients (float32) the means over the ranks, in place, and returns that of the loss.
  // Sync: waits for the device.
  at::Tensor Average(const std::vector<at::Tensor>& gradients, const at::Tensor& loss);

  // Makes the tensors those of rank 0, in place.
  void CopyFromFirst(const std::vector<at::Tensor>& tensors);
  // Returns what rank 0 gave.
  std::string FromFirst(const std::string& own);
  // Returns what each rank gave, by rank.
  std::vector<std::string> FromAll(const std::string& own);
  // Until all ranks are here.
  void Await();

 private:
  struct Connection;

  std::string NextKey();

  const RankPlace place_;
  std::unique_ptr<Connection> connection_;
  ControlFlags mine_;
  ControlFlags agreed_;
  at::Tensor buffer_;      // float32 on the CPU: gradients, loss, wishes.
  int64_t exchanges_ = 0;  // Through the store; each has a key of its own.
};

}  // namespace genesis
