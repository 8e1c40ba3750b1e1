#pragma once

#include <string>

namespace genesis {

// Lets nativert call an operator through the dispatcher, where it finds this folder's kernel. It
// has kernels of its own for some operators, which call LibTorch's functions past the dispatcher;
// the one of this operator ("mm.default") is taken out of its registry. For graphs that are loaded
// from now on; nothing happens where there is none.
void LeaveToDispatcher(const std::string& operation);

}  // namespace genesis
