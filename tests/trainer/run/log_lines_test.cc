#include "trainer/run/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace genesis {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// A model that consists of weights only, with three elements each.
class Weights final : public Model {
 public:
  Weights(int count, std::vector<std::string> without_gradient)
      : count_(count), without_gradient_(std::move(without_gradient)) {}
  NamedTensors parameters() const override {
    return NamedTensors(static_cast<size_t>(count_), {"weight", torch::zeros({3})});
  }
  std::vector<std::string> without_gradient() const override { return without_gradient_; }
  NamedTensors buffers() const override { return {}; }
  void To(torch::Device) override {}
  torch::Tensor Loss(const Batch&, std::optional<torch::ScalarType>) override { return {}; }
  std::vector<MetricSum> Evaluate(const Batch&) override { return {}; }
  int64_t OperationsPerExample() const override { return 1; }

 private:
  const int count_;
  const std::vector<std::string> without_gradient_;
};

TEST(LogLinesTest, CountWhatIsTrained) {
  EXPECT_EQ(ModelLine(Weights(1, {})), "model: 3 trainable parameters in 1 tensor");
  EXPECT_EQ(ModelLine(Weights(4, {})), "model: 12 trainable parameters in 4 tensors");
}

TEST(LogLinesTest, NameWhatHadNoGradient) {
  EXPECT_EQ(
      ModelLine(Weights(4, {"head.weight", "head.bias"})),
      "model: 12 trainable parameters in 4 tensors; in the trial before the job 2 of them did "
      "not receive a gradient: head.weight, head.bias");
}

TEST(LogLinesTest, BoundWhatAModuleCallsItsParameters) {
  EXPECT_THAT(ModelLine(Weights(20, std::vector<std::string>(17, "w"))),
              EndsWith(" 17 of them did not receive a gradient: w, w, w, w, w, w and 11 more"));
  const std::string line =
      ModelLine(Weights(20, std::vector<std::string>(9, "a\nb" + std::string(100'000, 'x'))));
  EXPECT_LT(line.size(), 2000U);
  EXPECT_THAT(line, HasSubstr("a\\nbxxx"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(LogLinesTest, SayHowAJobEnded) {
  training::v1::Finished finished;
  finished.mutable_progress()->set_step(7);
  finished.mutable_progress()->set_loss(0.25);
  training::v1::Evaluation evaluation;
  evaluation.set_loss(0.5);
  EXPECT_EQ(CompletionLine("drone", finished, evaluation),
            "training complete: job drone, 7 steps, loss 0.25, held-out loss 0.5");
  finished.set_early_end("target loss 0.5 reached");
  EXPECT_THAT(CompletionLine("drone", finished, evaluation),
              EndsWith(", held-out loss 0.5; ended early: target loss 0.5 reached"));
  finished.mutable_held_out()->set_model(0.1);
  EXPECT_THAT(CompletionLine("drone", finished, evaluation),
              HasSubstr(", held-out error 0.1 (persistence 0, mean 0); ended early"));
}

}  // namespace
}  // namespace genesis
