#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/dataset.h"

namespace genesis {

// Mean and standard deviation of columns, in two passes over the rows: first every row to
// AddToMean, then every row to AddToDeviation. Sums run in double in the order of the rows, so the
// result does not depend on how the rows were cut into pieces.
//
// Owner: who opens a dataset. Threads: one.
class StatisticsBuilder {
 public:
  explicit StatisticsBuilder(int64_t columns);

  void AddToMean(const float* row);
  void AddToDeviation(const float* row);
  ColumnStatistics Finish() const;

 private:
  void FinishMean();

  int64_t rows_ = 0;
  bool has_mean_ = false;
  std::vector<double> mean_;  // The sum, until the first AddToDeviation.
  std::vector<double> squares_;
};

}  // namespace genesis
