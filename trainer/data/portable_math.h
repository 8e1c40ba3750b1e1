#pragma once

namespace genesis {

// Functions that the C libraries of different machines round differently, made of additions,
// multiplications and divisions in double, which round the same everywhere. Exact to about 1e-14.
double PortableTanh(double x);
// Requires x > 0, normal.
double PortableLog2(double x);

}  // namespace genesis
