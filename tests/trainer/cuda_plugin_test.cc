#include "trainer/run/cuda_plugin.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace genesis {
namespace {

using testing::HasSubstr;

// Whether a graph works needs a GPU (tests/gpu); that the plug-in finds all that it calls does not.
TEST(CudaPluginTest, FindsWhatItCallsInLibTorch) {
  ASSERT_NE(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  std::string fault;
  const StepGraphMaker graphs = CudaStepGraphs(GENESIS_PROGRAMS, &fault);
  EXPECT_TRUE(graphs) << fault;
  EXPECT_EQ(fault, "");
}

TEST(CudaPluginTest, SaysWhichFileIsMissing) {
  std::string fault;
  EXPECT_FALSE(CudaStepGraphs("/nowhere", &fault));
  EXPECT_THAT(fault, HasSubstr("/nowhere/libgenesis_cuda.so cannot be used: "));
}

}  // namespace
}  // namespace genesis
