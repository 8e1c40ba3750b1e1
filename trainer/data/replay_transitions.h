#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replay/replay_snapshot.h"
#include "trainer/data/transition_rows.h"

namespace genesis {

// Returns the name of a buffer's folder for messages. A trailing slash makes no difference.
std::string ReplayName(const std::string& folder);

// A snapshot with its episodes.
struct ReplayEpisodes {
  ReplaySnapshot snapshot;
  // First row of each episode, counted from the oldest transition, then the number of rows.
  std::vector<int64_t> starts;
  // One per row. A transition without a priority gets the highest existing one (1 if there is
  // none), so that each is drawn soon, as Schaul et al. do.
  std::vector<float> priorities;
};

// Returns INVALID_ARGUMENT if the buffer is empty or a priority is not finite or below 0.
absl::StatusOr<ReplayEpisodes> ReadReplayEpisodes(const std::string& folder);

// A converter of transitions to float32 rows of TransitionRows, by the columns of a layout.
class VectorColumns {
 public:
  // Returns INVALID_ARGUMENT unless the layout has observations, actions and next_observations:
  // numbers, or vectors of a fixed size.
  static absl::StatusOr<VectorColumns> Create(const ReplayLayout& layout);

  int64_t observation_size() const { return columns_[0].elements(); }
  int64_t action_size() const { return columns_[1].elements(); }
  // Returns the number of float32 values in a row.
  int64_t width() const { return 2 * observation_size() + action_size() + 2; }
  // Copies transitions [first, first + count) as rows in the format of TransitionRows.
  absl::Status Read(const ReplaySnapshot& snapshot, uint64_t first, int64_t count,
                    float* out) const;

 private:
  std::vector<ReplayColumn> columns_;
  std::vector<uint64_t> offsets_;
};

// Opens a snapshot of a replay buffer as float32 transitions.
absl::StatusOr<std::unique_ptr<TransitionRows>> OpenReplayTransitions(const std::string& folder);

}  // namespace genesis
