#include "trainer/cuda/cuda_plugin.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/trainer/job_for_test.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/run/step_trace.h"
#include "trainer/step/training_session.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Running a graph needs a GPU (tests/gpu); resolving the plug-in's symbols does not.
TEST(CudaPluginTest, FindsWhatItCallsInLibTorch) {
  ASSERT_NE(dlopen(TORCH_CUDA_LIBRARY, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  std::string fault;
  const StepGraphMaker graphs = CudaStepGraphs(GENESIS_PROGRAMS, &fault);
  EXPECT_TRUE(graphs) << fault;
  EXPECT_EQ(fault, "");
}

TEST(CudaPluginTest, FindsNccl) {
  ASSERT_NE(dlopen(TORCH_CUDA_LIBRARY, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  std::string fault;
  CommunicatorFactory* const communicators = NcclCommunicators(GENESIS_PROGRAMS, &fault);
  ASSERT_NE(communicators, nullptr) << fault;
  EXPECT_EQ(fault, "");
  EXPECT_NE(communicators->NewId(), communicators->NewId());
}

TEST(CudaPluginTest, SaysWhichFileIsMissing) {
  std::string fault;
  EXPECT_FALSE(CudaStepGraphs("/nowhere", &fault));
  EXPECT_THAT(fault, HasSubstr("/nowhere/libgenesis_cuda.so cannot be used: "));
  EXPECT_EQ(NcclCommunicators("/nowhere", &fault), nullptr);
  EXPECT_THAT(fault, HasSubstr("/nowhere/libgenesis_nccl.so cannot be used: "));
}

// NVTX does not need a GPU, so its ranges can be recorded here.
TEST(NsightTest, GetsThePartsOfEachStepAsRanges) {
  ASSERT_NE(dlopen(TORCH_CUDA_LIBRARY, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  const TempDir folder;
  const std::string ranges = folder.path() + "/ranges";
  setenv("NVTX_INJECTION64_PATH", NVTX_RECORDER, 1);
  setenv("NVTX_RECORDER_FILE", ranges.c_str(), 1);
  training::v1::StartJob start = TinyJob(folder);
  start.mutable_spec()->mutable_trace()->set_at_step(1);
  RecordingObserver observer;
  {
    StepTrace trace(start, /*cuda=*/true, observer);
    const auto dataset = *OpenDataset(start.spec());
    RankGroup alone;
    TrainingSession session(start, *dataset, at::kCPU, alone);
    session.SetMode(training::v1::PRECISION_MODE_FP32);
    for (int step = 1; step <= 2; ++step) {
      trace.Begin(step);
      session.step().Run(step);
      trace.End(step);
    }
  }
  std::ifstream file(ranges);
  std::vector<std::string> names;
  for (std::string name; std::getline(file, name);) names.push_back(name.substr(0, name.find(',')));
  EXPECT_THAT(names, ElementsAre("draw", "forward", "backward", "update", "draw", "forward",
                                 "backward", "update"));
  EXPECT_EQ(observer.log, "trace: not made, for NVIDIA Nsight profiles this worker\n");
}

}  // namespace
}  // namespace genesis
