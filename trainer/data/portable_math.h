#pragma once

namespace genesis {

// Functions that the C libraries of different machines round differently, built from additions,
// multiplications and divisions in double, which round the same everywhere. Accurate to about
// 1e-14.
double PortableTanh(double x);
// Requires x > 0, normal.
double PortableLog2(double x);

}  // namespace genesis
