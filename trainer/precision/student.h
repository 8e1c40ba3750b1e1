#pragma once

namespace genesis {

// Returns the probability that a variable with Student's t-distribution of `freedom` degrees of
// freedom (> 0) exceeds t.
double StudentTail(double t, double freedom);

}  // namespace genesis
