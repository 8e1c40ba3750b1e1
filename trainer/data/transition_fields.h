#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "trainer/data/column_statistics.h"
#include "trainer/data/dataset.h"

// The fields of examples that consist of transitions, filled from rows of TransitionRows.
namespace genesis {

// Returns the fields of examples of `steps` transitions.
std::vector<Field> TransitionFields(int64_t observation_size, int64_t action_size, int64_t steps);

// Copies a row to index `place` of each field: out[f] + place * bytes of one transition.
void PutTransition(const float* row, int64_t observation_size, int64_t action_size, int64_t place,
                   absl::Span<std::byte* const> out);

// The statistics of the training part, built in two passes over its rows (StatisticsBuilder).
class TransitionStatistics {
 public:
  TransitionStatistics(int64_t observation_size, int64_t action_size);

  void AddToMean(const float* row) { Add<&StatisticsBuilder::AddToMean>(row); }
  void AddToDeviation(const float* row) { Add<&StatisticsBuilder::AddToDeviation>(row); }
  std::map<std::string, ColumnStatistics> Finish() const;

 private:
  template <auto kAdd>
  void Add(const float* row);

  const int64_t observation_size_, action_size_;
  StatisticsBuilder observation_, action_, change_, next_observation_, reward_;
  std::vector<float> difference_;
};

// Returns, for the log, the columns of the training part that do not vary; usually "".
std::string ConstantColumns(const std::map<std::string, ColumnStatistics>& statistics);

}  // namespace genesis
