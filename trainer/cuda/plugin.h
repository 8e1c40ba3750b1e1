#pragma once

#include "trainer/cuda/communicator.h"
#include "trainer/cuda/step_graph.h"

// The functions that the plug-ins export to genesis-worker, which is built with them.
extern "C" {
// In libgenesis_cuda.so. The caller owns the graph.
__attribute__((visibility("default"))) genesis::StepGraph* GenesisMakeCudaStepGraph();
// In libgenesis_nccl.so, which owns the factory.
__attribute__((visibility("default"))) genesis::CommunicatorFactory* GenesisNcclCommunicators();
}
