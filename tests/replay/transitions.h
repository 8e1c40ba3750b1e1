#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "replay/replay_snapshot.h"
#include "replay/replay_writer.h"

namespace genesis {

inline constexpr ReplayLayout kLayout{.observation_size = 2, .action_size = 1};

// Returns transitions whose rewards are their numbers. Every `episode` transitions end an episode.
inline std::vector<ReplayTransition> Numbered(int first, int count, int episode = 4) {
  std::vector<ReplayTransition> transitions;
  for (int i = first; i < first + count; ++i) {
    const auto x = static_cast<float>(i);
    transitions.push_back({.observation = {x, -x},
                           .action = {x / 2},
                           .next_observation = {x + 1, -x - 1},
                           .reward = x,
                           .terminal = i % episode == episode - 1,
                           .priority = {}});
  }
  return transitions;
}

// Returns the rewards of all transitions in a folder.
inline absl::StatusOr<std::vector<float>> Rewards(const std::string& folder) {
  std::vector<float> rewards;
  const auto snapshot = ReplaySnapshot::Open(
      folder, [&rewards](uint64_t, const ReplayRowEnd& end) { rewards.push_back(end.reward); });
  if (!snapshot.ok()) return snapshot.status();
  return rewards;
}

// Returns `count` numbers from `first` on as floats: first, first + 1, ...
inline std::vector<float> Counted(int first, int count) {
  std::vector<float> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<float>(first + i));
  return numbers;
}

}  // namespace genesis
