#pragma once

#include <string>

namespace genesis {

// Makes nativert call an operator through the dispatcher, where it finds this folder's kernel. For
// some operators nativert has kernels that call LibTorch's functions directly; this removes the one
// of this operator ("mm.default") from its registry. Affects graphs loaded from now on; no effect
// if there is no such kernel.
void LeaveToDispatcher(const std::string& operation);

}  // namespace genesis
