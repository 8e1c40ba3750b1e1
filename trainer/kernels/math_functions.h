#pragma once

namespace genesis {

// Makes MKL choose its kernels for the elementwise functions that LibTorch takes from it: exp, log,
// sqrt, tanh and others. MKL 2024 chooses at the first call of a function; if several threads make
// that call, one of them may compute its part of the tensor by a kernel of low accuracy, and losses
// are off by 1e-6 (PyTorch issue 188792). Call before any other thread computes.
void ChooseMathFunctions();

}  // namespace genesis
