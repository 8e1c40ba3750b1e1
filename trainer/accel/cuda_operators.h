#pragma once

#include <string>
#include <utility>
#include <vector>

namespace genesis {

// The operators of graphs that torch traced on a CPU which CUDA has no kernel for, or none for the
// same types or layouts, as nativert names them ("torch.ops.aten.native_layer_norm.default"), each
// with the operator of this process that takes its place on CUDA. Both have one schema:
//   native_layer_norm, native_group_norm and their backward: CPU kernels take BF16 and FP16 inputs
//     with FP32 weights, as they arise under torch.autocast("cpu"); here they are computed in FP32
//     and rounded once.
//   _scaled_dot_product_flash_attention_for_cpu and its backward: the flash kernel of CUDA where
//     LibTorch prefers it for these tensors, else the memory-efficient one.
//   view, _unsafe_view: reshape, for kernels of CUDA may leave results in another layout.
// Defined by the first call. Threads: any.
const std::vector<std::pair<std::string, std::string>>& OperatorsForCuda();

}  // namespace genesis
