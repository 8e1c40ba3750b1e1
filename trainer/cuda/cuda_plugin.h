#pragma once

#include <string>

#include "trainer/cuda/communicator.h"
#include "trainer/cuda/step_graph.h"

namespace genesis {

// Returns the factory of CUDA graphs from libgenesis_cuda.so in `folder`. Empty, with the reason in
// `fault`, if the library cannot be loaded or lacks the entry point. Requires that libtorch_cuda.so
// is loaded (DetectDevice).
StepGraphMaker CudaStepGraphs(const std::string& folder, std::string* fault);

// Returns NCCL's communicators from libgenesis_nccl.so in `folder`; null, with the reason in
// `fault`, if the library cannot be loaded or lacks the entry point. Lives as long as the process.
CommunicatorFactory* NcclCommunicators(const std::string& folder, std::string* fault);

}  // namespace genesis
