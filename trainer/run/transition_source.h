#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/data/batch_sampler.h"
#include "trainer/data/trajectory_dataset.h"
#include "trainer/models/world_model.h"

namespace genesis {

// Serves the training transitions batch by batch, from the device: all columns stand in one table,
// so that a batch is one gather, and the order of an epoch goes to the device once.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class TransitionSource {
 public:
  TransitionSource(const TrajectoryDataset& dataset, int64_t batch_size, uint64_t seed,
                   at::Device device);

  TransitionBatch Next();

  int64_t batch_size() const { return sampler_.batch_size(); }
  int64_t batches_per_epoch() const { return sampler_.batches_per_epoch(); }
  const SamplerPosition& position() const { return sampler_.position(); }
  void Seek(const SamplerPosition& position);

 private:
  void UploadOrder();

  const int64_t observation_size_;
  const int64_t action_size_;
  BatchSampler sampler_;
  torch::Tensor table_;  // observation, action, change, reward, done
  torch::Tensor order_;
};

// Rows [begin, end) of the dataset on the device, all columns.
torch::Tensor TransitionTable(const TrajectoryDataset& dataset, int64_t begin, int64_t end,
                              at::Device device);

// The columns of some rows of a table.
TransitionBatch SplitColumns(const torch::Tensor& rows, int64_t observation_size,
                             int64_t action_size);

}  // namespace genesis
