#pragma once

#include <string>

#include "trainer/accel/step_graph.h"

namespace genesis {

// CUDA graphs, from the libgenesis_cuda.so in `folder`. Empty, with the reason in `fault`, where it
// is missing or does not fit. Requires that libtorch_cuda.so is loaded (DetectDevice).
StepGraphMaker CudaStepGraphs(const std::string& folder, std::string* fault);

}  // namespace genesis
