#pragma once

#include "trainer/accel/step_graph.h"

// The export of libgenesis_cuda.so to genesis-worker, which is built with it. The caller owns the
// graph.
extern "C" {
__attribute__((visibility("default"))) genesis::StepGraph* GenesisMakeCudaStepGraph();
}
