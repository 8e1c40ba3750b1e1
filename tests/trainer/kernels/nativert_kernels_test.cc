#include "trainer/kernels/nativert_kernels.h"

#include <string>

#include "gtest/gtest.h"
#include "trainer/kernels/nativert_registry.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

bool HasItsOwn(const std::string& operation) {
  return torch::nativert::StaticallyDispatchedCPUKernelRegistry()->Has("torch.ops.aten." +
                                                                       operation);
}

TEST(NativertKernelsTest, ThoseThatAreLeftToTheDispatcherAreGone) {
  ASSERT_TRUE(HasItsOwn("tanh.default"));
  LeaveToDispatcher("tanh.default");
  EXPECT_FALSE(HasItsOwn("tanh.default"));
  EXPECT_TRUE(HasItsOwn("cos.default"));
  LeaveToDispatcher("tanh.default");
  LeaveToDispatcher("no_such_operation.default");
}

TEST(NativertKernelsTest, GraphsFindOurProducts) {
  ASSERT_TRUE(HasItsOwn("mm.default"));
  UseOwnKernels();
  EXPECT_EQ(HasItsOwn("mm.default"), !MultipliesByOneDnn() && !MultipliesBf16InFp32());
}

}  // namespace
}  // namespace genesis
