#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/dataset.h"

namespace genesis {

// Mean and standard deviation of columns, in two passes over the rows: first every row to
// AddToMean, then every row to AddToDeviation. Sums run in double in the order of the rows, so the
// result does not depend on how the rows were cut into pieces. A column is constant where its
// numbers differ by rounding alone, whatever their unit: data times a power of two have the same
// constant columns, and deviations times that power.
//
// Owner: who opens a dataset. Threads: one.
class StatisticsBuilder {
 public:
  explicit StatisticsBuilder(int64_t columns);

  void AddToMean(const float* row);
  void AddToDeviation(const float* row);
  // A column that is constant has the deviation 1.
  ColumnStatistics Finish() const;
  // The same of columns that are differences of numbers like those of `minuend`, with their
  // rounding. One that is constant while its column of `minuend` is not has that column's
  // deviation, so that what a model makes of noise is small beside that column.
  ColumnStatistics FinishDifferences(const StatisticsBuilder& minuend) const;

 private:
  void FinishMean();
  double Deviation(size_t column) const;
  // The root of the mean of squares.
  double Size(size_t column) const;
  void Put(size_t column, bool constant, double deviation, ColumnStatistics& statistics) const;

  int64_t rows_ = 0;
  bool has_mean_ = false;
  std::vector<double> mean_;  // The sum, until the first AddToDeviation.
  std::vector<double> squares_;
};

}  // namespace genesis
