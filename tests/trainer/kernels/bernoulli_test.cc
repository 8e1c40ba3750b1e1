#include "trainer/kernels/bernoulli.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/DistributionsHelper.h>
#include <torch/torch.h>

#include <vector>

#include "config/precision/vector_instructions.h"
#include "gtest/gtest.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

// Draws numbers as LibTorch does, one after another in memory order.
std::vector<double> Reference(at::CPUGeneratorImpl* numbers, double probability, int64_t count) {
  std::vector<double> drawn;
  at::bernoulli_distribution<double> distribution(probability);
  for (int64_t i = 0; i < count; ++i) {
    drawn.push_back(static_cast<double>(distribution(numbers)));
  }
  return drawn;
}

class BernoulliTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasAvx2()) GTEST_SKIP() << "needs AVX2";
  }

  // Seeds both generators equally and draws `ahead` numbers from each.
  void Seed(uint64_t seed, int ahead) {
    for (at::Generator* const each : {&ours_, &theirs_}) {
      *each = at::detail::createCPUGenerator(seed);
      for (int i = 0; i < ahead; ++i) each->get<at::CPUGeneratorImpl>()->random();
    }
  }

  void Compare(at::Tensor tensor, double probability) {
    Bernoulli(tensor, probability, ours_);
    auto* const theirs = theirs_.get<at::CPUGeneratorImpl>();
    const std::vector<double> expected = Reference(theirs, probability, tensor.numel());
    const at::Tensor found = tensor.as_strided({tensor.numel()}, {1}).to(at::kDouble).contiguous();
    EXPECT_EQ(std::vector<double>(found.const_data_ptr<double>(),
                                  found.const_data_ptr<double>() + found.numel()),
              expected);
    // The next numbers must be the same, whichever implementation drew these.
    EXPECT_EQ(ours_.get<at::CPUGeneratorImpl>()->random64(), theirs->random64());
  }

  at::Generator ours_;
  at::Generator theirs_;
};

TEST_F(BernoulliTest, DrawsTheNumbersOfLibTorch) {
  for (const int64_t count : {0, 1, 7, 8, 311, 312, 313, 624, 5000, 100'003}) {
    for (const int ahead : {0, 1, 2, 623, 624, 1001}) {
      for (const at::ScalarType type : {at::kBool, at::kFloat, at::kBFloat16}) {
        SCOPED_TRACE(testing::Message() << count << " after " << ahead << " of " << type);
        Seed(17, ahead);
        Compare(at::empty({count}, type), 0.9);
      }
    }
  }
}

TEST_F(BernoulliTest, TakesEveryProbability) {
  for (const double probability : {0.0, 0x1p-60, 0x1p-53, 1e-9, 0.1, 0.5, 1 - 0x1p-53, 1.0}) {
    SCOPED_TRACE(probability);
    Seed(5, 3);
    Compare(at::empty({4001}, at::kBool), probability);
  }
}

TEST_F(BernoulliTest, FillsMemoryInItsOrderAndKeepsToTheShape) {
  Seed(9, 0);
  Compare(at::empty({6, 5, 7}, at::kFloat).permute({2, 0, 1}), 0.3);
  Compare(at::empty({2, 3, 8, 8}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast), 0.3);
}

TEST_F(BernoulliTest, GapsAndOtherTypesStayWithLibTorch) {
  Seed(9, 0);
  at::Tensor wide = at::zeros({8, 8}, at::kFloat);
  at::Tensor part = wide.narrow(1, 0, 4);
  Bernoulli(part, 1.0, ours_);
  EXPECT_EQ(wide.sum().item<double>(), 32);
  at::Tensor wholes = at::zeros({9}, at::kLong);
  EXPECT_EQ(Bernoulli(wholes, 1.0, ours_).sum().item<int64_t>(), 9);
  at::Tensor any = at::zeros({3});
  EXPECT_THROW(Bernoulli(any, 1.5, ours_), c10::Error);
}

// Dropout and bernoulli must draw the same masks before and after UseOwnKernels.
TEST_F(BernoulliTest, IsWhatDropoutDraws) {
  const auto masks = [] {
    torch::manual_seed(3);
    const at::Tensor values = torch::ones({64, 33});
    return std::vector<at::Tensor>{std::get<1>(at::native_dropout(values, 0.1, true)),
                                   at::dropout(values, 0.2, true), at::bernoulli(values, 0.3)};
  };
  const std::vector<at::Tensor> before = masks();
  UseOwnKernels();
  const std::vector<at::Tensor> after = masks();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
}

}  // namespace
}  // namespace genesis
