#include "trainer/data/column_statistics.h"

#include <cmath>
#include <limits>

namespace genesis {
namespace {

// Upper bound of rounding errors, relative to the magnitude of the numbers: at most four units in
// the last place of float32.
constexpr double kRounding = 0x1p-22;

// Returns whether `deviation` is only rounding error of float32 numbers of magnitude `size`.
bool IsRounding(double deviation, double size) {
  return deviation <= kRounding * size || deviation < std::numeric_limits<float>::min();
}

}  // namespace

StatisticsBuilder::StatisticsBuilder(int64_t columns)
    : mean_(static_cast<size_t>(columns)), squares_(static_cast<size_t>(columns)) {}

void StatisticsBuilder::AddToMean(const float* row) {
  ++rows_;
  for (size_t i = 0; i < mean_.size(); ++i) mean_[i] += row[i];
}

void StatisticsBuilder::FinishMean() {
  for (double& mean : mean_) mean /= static_cast<double>(rows_);
  has_mean_ = true;
}

void StatisticsBuilder::AddToDeviation(const float* row) {
  if (!has_mean_) FinishMean();
  for (size_t i = 0; i < mean_.size(); ++i) {
    const double off = row[i] - mean_[i];
    squares_[i] += off * off;
  }
}

double StatisticsBuilder::Deviation(size_t column) const {
  return std::sqrt(squares_[column] / static_cast<double>(rows_));
}

double StatisticsBuilder::Size(size_t column) const {
  return std::hypot(mean_[column], Deviation(column));
}

void StatisticsBuilder::Put(size_t column, bool constant, double deviation,
                            ColumnStatistics& statistics) const {
  statistics.mean.push_back(static_cast<float>(mean_[column]));
  statistics.deviation.push_back(static_cast<float>(deviation));
  if (constant) statistics.constant.push_back(static_cast<int64_t>(column));
}

ColumnStatistics StatisticsBuilder::Finish() const {
  ColumnStatistics statistics;
  for (size_t i = 0; i < mean_.size(); ++i) {
    const bool constant = IsRounding(Deviation(i), Size(i));
    Put(i, constant, constant ? 1 : Deviation(i), statistics);
  }
  return statistics;
}

ColumnStatistics StatisticsBuilder::FinishDifferences(const StatisticsBuilder& minuend) const {
  ColumnStatistics statistics;
  for (size_t i = 0; i < mean_.size(); ++i) {
    const double size = minuend.Size(i);
    const double of_minuend = minuend.Deviation(i);
    const bool constant = IsRounding(Deviation(i), size);
    const double unit = IsRounding(of_minuend, size) ? 1 : of_minuend;
    Put(i, constant, constant ? unit : Deviation(i), statistics);
  }
  return statistics;
}

}  // namespace genesis
