#include "trainer/run/transition_source.h"

#include <vector>

namespace genesis {
namespace {

// Rows [begin, end) of a column group; shares memory with `values`.
torch::Tensor Rows(const std::vector<float>& values, int64_t columns, int64_t begin, int64_t end) {
  float* const first = const_cast<float*>(values.data()) + begin * columns;
  return torch::from_blob(first, {end - begin, columns}, torch::kFloat);
}

}  // namespace

torch::Tensor TransitionTable(const TrajectoryDataset& dataset, int64_t begin, int64_t end,
                              at::Device device) {
  const torch::Tensor observations =
      Rows(dataset.observations, dataset.observation_size, begin, end);
  const torch::Tensor changes =
      Rows(dataset.next_observations, dataset.observation_size, begin, end) - observations;
  return torch::cat({observations, Rows(dataset.actions, dataset.action_size, begin, end), changes,
                     Rows(dataset.rewards, 1, begin, end), Rows(dataset.dones, 1, begin, end)},
                    1)
      .to(device);
}

TransitionBatch SplitColumns(const torch::Tensor& rows, int64_t observation_size,
                             int64_t action_size) {
  const std::vector<torch::Tensor> columns =
      rows.split_with_sizes({observation_size, action_size, observation_size, 1, 1}, 1);
  return {.observation = columns[0],
          .action = columns[1],
          .change = columns[2],
          .reward = columns[3],
          .done = columns[4]};
}

TransitionSource::TransitionSource(const TrajectoryDataset& dataset, int64_t batch_size,
                                   uint64_t seed, at::Device device)
    : observation_size_(dataset.observation_size),
      action_size_(dataset.action_size),
      sampler_(dataset.training_size, batch_size, seed),
      table_(TransitionTable(dataset, 0, dataset.training_size, device)) {
  UploadOrder();
}

TransitionBatch TransitionSource::Next() {
  const torch::Tensor chosen = order_.narrow(0, sampler_.offset(), sampler_.batch_size());
  const int64_t epoch = sampler_.position().epoch;
  sampler_.Advance();
  const torch::Tensor rows = table_.index_select(0, chosen);
  if (sampler_.position().epoch != epoch) UploadOrder();
  return SplitColumns(rows, observation_size_, action_size_);
}

void TransitionSource::Seek(const SamplerPosition& position) {
  sampler_.Seek(position);
  UploadOrder();
}

void TransitionSource::UploadOrder() {
  const std::vector<int64_t>& order = sampler_.order();
  // Sync: on CUDA this copy from pageable memory waits; once per epoch.
  order_ = torch::tensor(order, torch::kLong).to(table_.device());
}

}  // namespace genesis
