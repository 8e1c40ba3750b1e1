#include "trainer/guard/operator_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace genesis {
namespace {

using ::testing::Contains;
using ::testing::Not;

struct Names : public OperatorListener {
  void OnEnd(const at::RecordFunction& function, at::ObserverContext* /*context*/) override {
    names.emplace_back(function.name());
  }
  std::vector<std::string> names;
};

TEST(OperatorWatchTest, TellsWhileItLives) {
  const torch::Tensor one = torch::ones({2, 2});
  Names names;
  {
    const OperatorWatch watch(names);
    torch::mm(one, one);
  }
  torch::relu(one);
  EXPECT_THAT(names.names, Contains("aten::mm"));
  EXPECT_THAT(names.names, Not(Contains("aten::relu")));
}

TEST(OperatorWatchTest, EndsWhereAModelThrows) {
  const torch::Tensor one = torch::ones({2, 2});
  Names names;
  const auto fail = [&] {
    const OperatorWatch watch(names);
    throw std::runtime_error("the model failed");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  torch::mm(one, one);
  EXPECT_TRUE(names.names.empty());
}

TEST(OperatorWatchTest, RefusesASecondAndKeepsTheFirst) {
  const torch::Tensor one = torch::ones({2, 2});
  Names first;
  Names second;
  const OperatorWatch watch(first);
  EXPECT_THROW(OperatorWatch{second}, c10::Error);
  torch::mm(one, one);
  EXPECT_THAT(first.names, Contains("aten::mm"));
  EXPECT_TRUE(second.names.empty());
}

}  // namespace
}  // namespace genesis
