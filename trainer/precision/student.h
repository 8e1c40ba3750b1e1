#pragma once

namespace genesis {

// Returns the probability that a number of Student's distribution with `freedom` degrees of freedom
// (> 0) exceeds t.
double StudentTail(double t, double freedom);

}  // namespace genesis
