#pragma once

namespace genesis {

// Functions that the C libraries of different machines round differently, built from additions,
// multiplications and divisions in double, which round the same everywhere. Accurate to about
// 1e-14.
double PortableTanh(double x);
// Returns the logarithm to base 2. Requires a normal x > 0.
double PortableLog2(double x);

}  // namespace genesis
