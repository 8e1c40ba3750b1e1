#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Mean and standard deviation of each column over the training part; a constant column gets 1, so
// that dividing by it is safe.
struct ColumnStatistics {
  std::vector<float> mean;
  std::vector<float> deviation;
};

// Transitions of whole episodes in time order, checked and in float32. Rows [0, training_size) are
// for training; the rest are the last episodes of the file, held out.
//
// An episode ends where terminals or timeouts is true; transitions after the last such row are an
// episode that the recording cut short. Integer actions become one-hot columns.
//
// Owner: the run. Threads: immutable once loaded. Failure: a status whose message begins with the
// file's path.
struct TrajectoryDataset {
  int64_t observation_size = 0;
  int64_t action_size = 0;
  int64_t size = 0;
  int64_t training_size = 0;
  int64_t episodes = 0;
  int64_t training_episodes = 0;

  std::vector<float> observations;       // size x observation_size
  std::vector<float> actions;            // size x action_size
  std::vector<float> rewards;            // size
  std::vector<float> next_observations;  // size x observation_size
  std::vector<float> dones;              // size; 1 where the episode reached a terminal state

  ColumnStatistics observation_statistics;
  ColumnStatistics action_statistics;
  ColumnStatistics reward_statistics;
  ColumnStatistics change_statistics;            // next_observations - observations
  ColumnStatistics next_observation_statistics;  // For the mean predictor.
};

// Reads the file that `spec` names. INVALID_ARGUMENT for data that cannot be trained on, NOT_FOUND,
// PERMISSION_DENIED, or DATA_LOSS for a damaged file.
absl::StatusOr<TrajectoryDataset> LoadTrajectories(const training::v1::TrajectoryFileSpec& spec);

}  // namespace genesis
