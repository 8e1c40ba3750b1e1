#pragma once

#include "trainer/accel/communicator.h"
#include "trainer/accel/step_graph.h"

// The exports of the plug-ins to genesis-worker, which is built with them.
extern "C" {
// libgenesis_cuda.so. The caller owns the graph.
__attribute__((visibility("default"))) genesis::StepGraph* GenesisMakeCudaStepGraph();
// libgenesis_nccl.so, which keeps it.
__attribute__((visibility("default"))) genesis::CommunicatorFactory* GenesisNcclCommunicators();
}
