#include "trainer/run/held_out_error.h"

#include <algorithm>

#include "trainer/run/transition_source.h"

namespace genesis {
namespace {

// Transitions predicted at a time.
constexpr int64_t kPart = 65536;

}  // namespace

training::v1::HeldOutError MeasureHeldOutError(WorldModel model, const TrajectoryDataset& dataset,
                                               at::Device device) {
  const torch::NoGradGuard no_grad;
  const auto on_device = [device](const std::vector<float>& values) {
    return torch::tensor(values).to(device);
  };
  const torch::Tensor deviation = on_device(dataset.observation_statistics.deviation);
  const torch::Tensor mean = on_device(dataset.next_observation_statistics.mean);
  const auto squares = torch::TensorOptions(torch::kDouble).device(device);
  torch::Tensor model_sum = torch::zeros({}, squares);
  torch::Tensor persistence_sum = torch::zeros({}, squares);
  torch::Tensor mean_sum = torch::zeros({}, squares);
  const auto add = [&deviation](torch::Tensor& sum, const torch::Tensor& error) {
    sum += (error / deviation).to(torch::kDouble).square().sum();
  };
  for (int64_t begin = dataset.training_size; begin < dataset.size; begin += kPart) {
    const int64_t end = std::min(begin + kPart, dataset.size);
    const TransitionBatch batch = SplitColumns(TransitionTable(dataset, begin, end, device),
                                               dataset.observation_size, dataset.action_size);
    const torch::Tensor next = batch.observation + batch.change;
    add(model_sum, model->forward(batch.observation, batch.action).next_observation - next);
    add(persistence_sum, batch.change);
    add(mean_sum, mean - next);
  }
  const int64_t transitions = dataset.size - dataset.training_size;
  const auto values = static_cast<double>(transitions * dataset.observation_size);
  training::v1::HeldOutError error;
  // Sync: the end of the job.
  error.set_model(model_sum.item<double>() / values);
  error.set_persistence(persistence_sum.item<double>() / values);
  error.set_mean(mean_sum.item<double>() / values);
  error.set_transitions(transitions);
  return error;
}

}  // namespace genesis
