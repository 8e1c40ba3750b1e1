#pragma once

#include <c10/macros/Export.h>
#include <c10/util/Registry.h>

#include <memory>
#include <string>

// The registry of nativert's own kernels, keyed by names such as "torch.ops.aten.mm.default".
// LibTorch exports it without a header.
namespace torch::nativert {

class Node;
class OpKernel;
using StaticKernels = c10::Registry<std::string, std::unique_ptr<OpKernel>, const Node*>;
TORCH_API StaticKernels* StaticallyDispatchedCPUKernelRegistry();

}  // namespace torch::nativert
