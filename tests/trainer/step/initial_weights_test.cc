#include "trainer/step/initial_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "tests/temp_dir.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/formats/safetensors.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A model that consists of two parameters, one with a second name, a counter and a mask.
class Weights final : public Model {
 public:
  NamedTensors parameters() const override { return {{"in.weight", in_}, {"in.bias", bias_}}; }
  NamedTensors buffers() const override { return {{"count", count_}, {"mask", mask_}}; }
  std::vector<std::pair<std::string, std::string>> tied() const override {
    return {{"out.weight", "in.weight"}};
  }
  bool buffers_are_of_data() const override { return of_data_; }
  void To(torch::Device) override {}
  torch::Tensor Loss(const Batch&, std::optional<torch::ScalarType>) override { return {}; }
  std::vector<MetricSum> Evaluate(const Batch&) override { return {}; }
  int64_t OperationsPerExample() const override { return 1; }

  void set_of_data() { of_data_ = true; }

 private:
  const torch::Tensor in_ = torch::zeros({2, 3}).set_requires_grad(true);
  const torch::Tensor bias_ = torch::zeros({2}).set_requires_grad(true);
  const torch::Tensor count_ = torch::zeros({}, torch::kLong);
  const torch::Tensor mask_ = torch::tensor({0.0F, -kInf});
  bool of_data_ = false;
};

class InitialWeightsTest : public testing::Test {
 protected:
  InitialWeightsTest() {
    saved_["in.weight"] = torch::arange(6, torch::kFloat).reshape({2, 3});
    saved_["in.bias"] = torch::ones({2});
    saved_["count"] = torch::tensor(int64_t{7});
    saved_["mask"] = torch::tensor({0.0F, -kInf});
  }

  absl::Status Load() {
    std::vector<SafetensorsEntry> entries;
    for (auto& [name, tensor] : saved_) {
      tensor = tensor.contiguous();
      entries.push_back({.name = name,
                         .type = *ToElementType(tensor.scalar_type()),
                         .shape = tensor.sizes().vec(),
                         .data = tensor.const_data_ptr()});
    }
    const std::string path = folder_.path() + "/start.safetensors";
    const absl::Status written = WriteSafetensors(path, std::move(entries), {});
    return written.ok() ? LoadInitialWeights(path, model_) : written;
  }
  // Returns the message of a refusal, and checks that the model has not changed.
  std::string Refusal() {
    const absl::Status status = Load();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("model.initial_weights "), HasSubstr("start.safetensors: "),
                      HasSubstr("; accepted: finite tensors with the names, shapes and types")));
    for (const auto& [name, tensor] : model_.parameters()) {
      EXPECT_TRUE(torch::equal(tensor, torch::zeros_like(tensor))) << name;
    }
    return std::string(status.message());
  }
  torch::Tensor Parameter(size_t number) const { return model_.parameters()[number].second; }

  TempDir folder_;
  Weights model_;
  std::map<std::string, torch::Tensor> saved_;
};

TEST_F(InitialWeightsTest, TakesAStateDict) {
  ASSERT_EQ(Load(), absl::OkStatus());
  EXPECT_TRUE(torch::equal(Parameter(0), saved_["in.weight"]));
  EXPECT_EQ(model_.buffers()[0].second.item<int64_t>(), 7);
}

TEST_F(InitialWeightsTest, ConvertsFloatingPointTypes) {
  saved_["in.weight"] = saved_["in.weight"].to(torch::kBFloat16);
  saved_["in.bias"] = saved_["in.bias"].to(torch::kDouble);
  ASSERT_EQ(Load(), absl::OkStatus());
  EXPECT_TRUE(torch::equal(Parameter(0), torch::arange(6, torch::kFloat).reshape({2, 3})));
}

TEST_F(InitialWeightsTest, TakesATiedTensorByAnyOfItsNames) {
  saved_["out.weight"] = saved_["in.weight"];
  ASSERT_EQ(Load(), absl::OkStatus());
  saved_.erase("in.weight");
  ASSERT_EQ(Load(), absl::OkStatus());
  EXPECT_TRUE(torch::equal(Parameter(0), saved_["out.weight"]));
}

TEST_F(InitialWeightsTest, RefusesATiedTensorWithTwoValues) {
  saved_["out.weight"] = torch::ones({2, 3});
  EXPECT_THAT(Refusal(), HasSubstr("1 tied tensor has two values: in.weight and out.weight"));
}

TEST_F(InitialWeightsTest, RefusesWhatTheModelHasNot) {
  saved_["head.bias"] = torch::ones({4}, torch::kHalf);
  EXPECT_THAT(Refusal(), HasSubstr("1 tensor that the job's model lacks: head.bias float16 [4];"));
  for (const char* name : {"head.weight", "x", "y\n\x1b[31m"}) saved_[name] = torch::ones({1});
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("4 tensors that the job's model lacks: head.bias"),
                               HasSubstr("x float32 [1], ...;"), Not(HasSubstr("\x1b"))));
}

TEST_F(InitialWeightsTest, RefusesWhatIsMissing) {
  saved_.erase("in.bias");
  saved_.erase("count");
  EXPECT_THAT(Refusal(), HasSubstr("2 tensors of the job's model are missing: in.bias float32 [2], "
                                   "count int64 [];"));
}

TEST_F(InitialWeightsTest, BuffersOfTheDataMayBeMissing) {
  saved_.erase("count");
  saved_.erase("mask");
  model_.set_of_data();
  EXPECT_EQ(Load(), absl::OkStatus());
}

TEST_F(InitialWeightsTest, RefusesOtherShapesAndTypes) {
  saved_["in.weight"] = torch::ones({3, 2});
  saved_["in.bias"] = torch::ones({2}, torch::kInt);
  saved_["count"] = torch::ones({});
  EXPECT_THAT(Refusal(), HasSubstr("3 tensors are of another shape or type: in.weight float32 "
                                   "[3, 2] for float32 [2, 3], in.bias int32 [2] for float32 [2], "
                                   "count float32 [] for int64 [];"));
}

TEST_F(InitialWeightsTest, RefusesValuesThatAreNotFinite) {
  saved_["in.weight"][1][2] = kInf;
  EXPECT_THAT(Refusal(), HasSubstr("1 tensor is not finite: in.weight is inf at [1, 2];"));
  saved_["in.weight"][0][1] = kNan;
  EXPECT_THAT(Refusal(), HasSubstr("in.weight is nan at [0, 1];"));
  saved_["in.weight"] = torch::ones({2, 3});
  saved_["in.bias"] = torch::tensor({1.0, -1e300}, torch::kDouble);
  EXPECT_THAT(Refusal(), HasSubstr("in.bias is -1e+300 at [1], more than float32 holds;"));
}

TEST_F(InitialWeightsTest, InfinitiesAreThoseOfTheModelsMask) {
  saved_["mask"] = torch::tensor({-kInf, -kInf});
  EXPECT_THAT(Refusal(), HasSubstr("mask is -inf at [0];"));
  saved_["mask"] = torch::tensor({0.0F, kInf});
  EXPECT_THAT(Refusal(), HasSubstr("mask is inf at [1];"));
}

TEST_F(InitialWeightsTest, SaysWhichPrefixIsTooMuch) {
  std::map<std::string, torch::Tensor> wrapped;
  for (const auto& [name, tensor] : saved_) wrapped["module." + name] = tensor;
  saved_ = wrapped;
  EXPECT_THAT(Refusal(), HasSubstr("; the names begin with module.: remove that"));
}

}  // namespace
}  // namespace genesis
