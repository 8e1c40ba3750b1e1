#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace genesis {

// The parts of one transition, in row order.
enum class TransitionPart { kObservation, kAction, kNextObservation, kReward, kDone };

// Transitions of whole episodes in time order, as a file holds them. A row is float32:
// observation [O], action [A], next observation [O], reward [1], done [1].
//
// Opening a file determines its sizes and episodes. TransitionDataset checks that the values are
// finite because it reads every row.
//
// Owner: a TransitionDataset. Threads: Read may be called from several at once. Failure: statuses
// whose message begins with the file's name.
class TransitionRows {
 public:
  virtual ~TransitionRows() = default;

  // Copies rows [first, first + count), each width() numbers.
  virtual absl::Status Read(int64_t first, int64_t count, float* out) const = 0;
  // Returns the text for one value in a message: "observations[123, 1] is nan".
  virtual std::string ValueText(TransitionPart part, int64_t row, int64_t column) const = 0;
  // Returns the bytes of memory that examples already take, e.g. because the file is compressed.
  virtual int64_t held_bytes() const { return 0; }
  // Describes the opened part if the file's name does not: "3 segments, transitions 0 to 4095".
  virtual std::string Describe() const { return ""; }
  // Moves out the priorities, one per row and each > 0; empty if the data has none.
  virtual std::vector<float> TakePriorities() { return {}; }

  int64_t width() const { return 2 * observation_size_ + action_size_ + 2; }
  int64_t size() const { return starts_.back(); }
  int64_t observation_size() const { return observation_size_; }
  int64_t action_size() const { return action_size_; }
  // First row of each episode, then the number of rows.
  const std::vector<int64_t>& starts() const { return starts_; }
  // The prefix of messages.
  const std::string& file() const { return file_; }

 protected:
  explicit TransitionRows(std::string file) : file_(std::move(file)) {}

  std::string file_;
  int64_t observation_size_ = 0;
  int64_t action_size_ = 0;
  std::vector<int64_t> starts_ = {0};
};

}  // namespace genesis
