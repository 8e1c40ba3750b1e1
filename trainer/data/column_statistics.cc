#include "trainer/data/column_statistics.h"

#include <algorithm>
#include <cmath>

namespace genesis {
namespace {

// Below this a column's spread is rounding noise of float32, not information.
constexpr double kConstantColumn = 1e-6;

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

ColumnStatistics StatisticsBuilder::Finish() const {
  ColumnStatistics statistics;
  for (size_t i = 0; i < mean_.size(); ++i) {
    const double deviation = std::sqrt(squares_[i] / static_cast<double>(rows_));
    const bool constant = deviation <= kConstantColumn * std::max(1.0, std::abs(mean_[i]));
    statistics.mean.push_back(static_cast<float>(mean_[i]));
    statistics.deviation.push_back(constant ? 1.0f : static_cast<float>(deviation));
  }
  return statistics;
}

}  // namespace genesis
