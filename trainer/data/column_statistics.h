#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/dataset.h"

namespace genesis {

// A builder of the mean and standard deviation of columns, in two passes over the rows: first every
// row to AddToMean, then every row to AddToDeviation. Sums are in double in row order, so the
// result does not depend on how rows are cut into pieces. A column is constant if its numbers
// differ only by rounding, in any unit: scaling the data by a power of two keeps the constant
// columns and scales the deviations.
//
// Owner: the function that opens a dataset. Threads: one.
class StatisticsBuilder {
 public:
  explicit StatisticsBuilder(int64_t columns);

  void AddToMean(const float* row);
  void AddToDeviation(const float* row);
  // Returns the statistics. A constant column has the deviation 1.
  ColumnStatistics Finish() const;
  // Returns the statistics of columns of differences. `minuend` has the statistics of the minuends,
  // whose rounding errors the differences contain. If a column is constant while its column of
  // `minuend` is not, it gets the deviation of `minuend`, so that noise predicted by a model stays
  // small compared with that column.
  ColumnStatistics FinishDifferences(const StatisticsBuilder& minuend) const;

 private:
  void FinishMean();
  double Deviation(size_t column) const;
  // Returns the root mean square of a column.
  double Size(size_t column) const;
  void Put(size_t column, bool constant, double deviation, ColumnStatistics& statistics) const;

  int64_t rows_ = 0;
  bool has_mean_ = false;
  std::vector<double> mean_;  // The sum until the first AddToDeviation.
  std::vector<double> squares_;
};

}  // namespace genesis
