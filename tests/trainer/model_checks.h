#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/trainer/memory_dataset.h"
#include "trainer/models/base/model.h"
#include "trainer/models/build_model.h"

namespace genesis {

// Limits tests to one thread, because their models are too small for several.
class OneThread : public testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] inline const auto* const kOneThread =
    testing::AddGlobalTestEnvironment(new OneThread);

inline std::unique_ptr<Model> Build(const training::v1::JobSpec& spec, const Dataset& dataset) {
  auto model = BuildModel(spec, dataset);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

inline std::string Refusal(const training::v1::JobSpec& spec, const Dataset& dataset) {
  const auto model = BuildModel(spec, dataset);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

inline std::vector<std::string> Names(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& entry : tensors) names.push_back(entry.first);
  return names;
}

inline double Value(const torch::Tensor& t) { return t.item<double>(); }

// Returns the loss as a step computes it: the model draws its random numbers first.
inline torch::Tensor DrawnLoss(Model& model, Batch batch,
                               std::optional<torch::ScalarType> autocast) {
  model.Draw(batch);
  return model.Loss(batch, autocast);
}

// Checks what every kind of model guarantees. `weights`: its loss supports example weights.
inline void CheckPromises(Model& model, const MemoryDataset& dataset, bool weights = true,
                          bool float32_buffers = true) {
  const Batch batch = dataset.Rows(0, 8);
  torch::manual_seed(1);
  const torch::Tensor loss = DrawnLoss(model, batch, std::nullopt);
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  loss.backward();
  for (const auto& [name, parameter] : model.parameters()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_EQ(parameter.scalar_type(), torch::kFloat) << name;
    parameter.mutable_grad().reset();
  }

  if (const torch::Tensor each = model.ExampleLosses(); each.defined()) {
    EXPECT_EQ(each.sizes(), torch::IntArrayRef({8}));
    EXPECT_FALSE(each.requires_grad());
    EXPECT_NEAR(Value(each.mean()), Value(loss), 1e-5 * std::abs(Value(loss)));
  }

  // Autocast must end when Loss returns, and the loss must be float32.
  torch::manual_seed(1);
  const torch::Tensor mixed = DrawnLoss(model, batch, torch::kBFloat16);
  EXPECT_EQ(mixed.scalar_type(), torch::kFloat);
  EXPECT_NEAR(Value(mixed), Value(loss), 0.03 * std::abs(Value(loss)));
  EXPECT_NE(Value(mixed), Value(loss));
  const torch::Tensor ones = torch::ones({2, 2});
  EXPECT_EQ(torch::mm(ones, ones).scalar_type(), torch::kFloat);

  // A weight must multiply the loss of its example.
  const auto weighted = [&](const torch::Tensor& weight) {
    Batch with = batch;
    with.fields["weight"] = weight.reshape({8, 1});
    torch::manual_seed(1);
    return Value(DrawnLoss(model, with, std::nullopt));
  };
  if (weights) {
    EXPECT_NEAR(weighted(torch::full({8}, 2.0f)), 2 * Value(loss), 1e-5 * std::abs(Value(loss)));
    torch::Tensor only_last = torch::zeros({8});
    only_last[7] = 8;
    const double last = weighted(only_last);
    EXPECT_NEAR(last, Value(model.ExampleLosses()[7]), 1e-5 * std::abs(last));
  }

  // Evaluate must sum over batches however they are split, be deterministic, and draw no numbers.
  torch::manual_seed(5);
  const torch::Tensor state = at::detail::getDefaultCPUGenerator().get_state();
  const std::vector<MetricSum> whole = model.Evaluate(batch);
  EXPECT_TRUE(torch::equal(state, at::detail::getDefaultCPUGenerator().get_state()));
  const std::vector<MetricSum> first = model.Evaluate(dataset.Rows(0, 3));
  const std::vector<MetricSum> second = model.Evaluate(dataset.Rows(3, 8));
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(whole[0].name, "loss");
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].sum.scalar_type(), torch::kDouble) << whole[i].name;
    EXPECT_EQ(whole[i].sum.dim(), 0) << whole[i].name;
    EXPECT_FALSE(whole[i].sum.requires_grad()) << whole[i].name;
    EXPECT_NEAR(Value(first[i].sum) + Value(second[i].sum), Value(whole[i].sum),
                1e-5 * std::abs(Value(whole[i].sum)))
        << whole[i].name;
  }
  EXPECT_GT(model.OperationsPerExample(), 0);

  // For pure BF16, parameters are converted in place. Existing handles must still be the model's.
  const NamedTensors parameters = model.parameters();
  const NamedTensors buffers = model.buffers();
  {
    const torch::NoGradGuard no_grad;
    for (const auto& entry : parameters) entry.second.set_data(entry.second.to(torch::kBFloat16));
  }
  EXPECT_EQ(model.InputType(), torch::kBFloat16);
  torch::manual_seed(1);
  const torch::Tensor pure = DrawnLoss(model, batch, std::nullopt);
  EXPECT_EQ(pure.scalar_type(), torch::kFloat);
  EXPECT_NEAR(Value(pure), Value(loss), 0.03 * std::abs(Value(loss)));
  pure.backward();
  for (const auto& [name, parameter] : parameters) {
    EXPECT_EQ(parameter.grad().scalar_type(), torch::kBFloat16) << name;
  }
  EXPECT_TRUE(std::isfinite(Value(model.Evaluate(batch)[0].sum)));
  for (const auto& [name, buffer] : buffers) {
    if (float32_buffers && buffer.is_floating_point()) {
      EXPECT_EQ(buffer.scalar_type(), torch::kFloat) << name;
    }
  }
}

// Runs `steps` steps of plain gradient descent.
inline void Train(Model& model, const Batch& batch, int steps, double rate) {
  for (int i = 0; i < steps; ++i) {
    DrawnLoss(model, batch, std::nullopt).backward();
    const torch::NoGradGuard no_grad;
    for (const auto& [name, parameter] : model.parameters()) {
      torch::Tensor(parameter).sub_(parameter.grad(), rate);
      parameter.mutable_grad().reset();
    }
  }
}

inline double Metric(const std::vector<MetricSum>& sums, const std::string& name) {
  for (const MetricSum& sum : sums) {
    if (sum.name == name) return Value(sum.sum);
  }
  ADD_FAILURE() << "no figure " << name;
  return 0;
}

}  // namespace genesis
