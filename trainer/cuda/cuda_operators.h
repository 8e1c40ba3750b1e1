#pragma once

#include <string>
#include <utility>
#include <vector>

namespace genesis {

// Returns pairs of operators. The first is an operator of graphs traced on a CPU that CUDA lacks,
// at least for some types or layouts; the second replaces it on CUDA and has the same schema. Names
// are nativert's ("torch.ops.aten.native_layer_norm.default"). The replaced operators are:
//   native_layer_norm, native_group_norm and their backward: CPU kernels accept BF16 and FP16
//     inputs with FP32 weights, which torch.autocast("cpu") produces. The replacements compute in
//     FP32 and round once.
//   _scaled_dot_product_flash_attention_for_cpu and its backward: CUDA's flash kernel if
//     LibTorch prefers it for these tensors, otherwise the memory-efficient one.
//   view, _unsafe_view: reshape, because CUDA kernels may leave results in another layout.
// The first call defines them. Threads: any.
const std::vector<std::pair<std::string, std::string>>& OperatorsForCuda();

}  // namespace genesis
