#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

struct TransitionOptions {
  double holdout_fraction = 0.1;
  int64_t rollout_steps = 1;
  int64_t memory_limit_bytes = int64_t{1} << 30;
};

// Transitions, or windows of rollout_steps of them inside one episode, from any kind of file. The
// last episodes are held out. Rows that fit the memory limit are kept; otherwise Gather reads them.
// Either way the numbers are bitwise the same.
//
// Owner: the run. Threads and failure: see Dataset.
class TransitionDataset final : public Dataset {
 public:
  // Reads every row to find values that are not finite and to sum for the means, then the rows of
  // the training part again to sum for the deviations.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(std::unique_ptr<TransitionRows> rows,
                                                       const TransitionOptions& options);

  const std::vector<Field>& fields() const override { return fields_; }
  int64_t size() const override { return first_examples_.back(); }
  int64_t training_size() const override;
  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override;
  const std::map<std::string, ColumnStatistics>& statistics() const override { return statistics_; }
  const std::vector<float>& priorities() const override { return priorities_; }
  std::string Describe() const override;

 private:
  TransitionDataset(std::unique_ptr<TransitionRows> rows, const TransitionOptions& options);

  absl::Status SplitEpisodes();
  void CutWindows();
  absl::Status CheckWindows() const;
  absl::Status ReadAll(bool keep);
  absl::Status CheckFinite(int64_t row, const float* values) const;
  std::string Place(int64_t row) const;
  int64_t FirstRow(int64_t example) const;
  void TakePriorities();

  const TransitionOptions options_;
  std::unique_ptr<TransitionRows> rows_;
  // Copied from TransitionRows, which may be released once its rows are kept.
  const int64_t observation_size_, action_size_, width_;
  const std::vector<int64_t> starts_;
  const std::string file_;
  const std::string described_;

  int64_t training_episodes_ = 0;
  int64_t short_episodes_ = 0;  // Too short for a window.
  // First example of each episode, then the number of examples.
  std::vector<int64_t> first_examples_{0};
  std::vector<float> table_;  // All rows, or empty.
  std::vector<Field> fields_;
  std::map<std::string, ColumnStatistics> statistics_;
  std::vector<float> priorities_;
};

}  // namespace genesis
