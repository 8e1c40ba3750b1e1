#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "replay/replay_snapshot.h"
#include "replay/replay_writer.h"

namespace genesis {

// The observations and actions of the tests have these sizes unless they say otherwise.
inline const ReplayLayout kLayout = ReplayLayout::OfVectors(2, 1);

struct ReplayTransition {
  std::vector<float> observation, action, next_observation;
  float reward = 0;
  bool terminal = false;
  bool timeout = false;
  std::optional<float> priority;
};

// Adds a part to a batch.
inline absl::Status AddTo(ReplayBatch& batch, const std::vector<ReplayTransition>& transitions,
                          const ReplayLayout& layout = kLayout) {
  std::vector<float> observations, actions, next_observations, rewards, priorities;
  const std::unique_ptr<bool[]> terminals(new bool[transitions.size()]);
  const std::unique_ptr<bool[]> timeouts(new bool[transitions.size()]);
  bool has_priority = false;
  for (size_t i = 0; i < transitions.size(); ++i) {
    const ReplayTransition& each = transitions[i];
    observations.insert(observations.end(), each.observation.begin(), each.observation.end());
    actions.insert(actions.end(), each.action.begin(), each.action.end());
    next_observations.insert(next_observations.end(), each.next_observation.begin(),
                             each.next_observation.end());
    rewards.push_back(each.reward);
    terminals[i] = each.terminal;
    timeouts[i] = each.timeout;
    has_priority = has_priority || each.priority.has_value();
    priorities.push_back(each.priority.value_or(1));
  }
  const auto bytes = [](const std::vector<float>& numbers) {
    return absl::string_view(reinterpret_cast<const char*>(numbers.data()),
                             numbers.size() * sizeof(float));
  };
  ReplayRows rows{.columns = {{.values = bytes(observations)},
                              {.values = bytes(actions)},
                              {.values = bytes(next_observations)}},
                  .rewards = rewards,
                  .terminals = absl::MakeConstSpan(terminals.get(), transitions.size()),
                  .timeouts = absl::MakeConstSpan(timeouts.get(), transitions.size()),
                  .priorities = {}};
  if (has_priority) rows.priorities = priorities;
  return batch.Add(layout, rows);
}

// Appends a batch of one part.
inline absl::StatusOr<Appended> AppendTo(ReplayWriter& writer, const std::string& id,
                                         const std::vector<ReplayTransition>& transitions,
                                         const ReplayLayout& layout = kLayout) {
  ReplayBatch batch(id, "");
  if (absl::Status status = AddTo(batch, transitions, layout); !status.ok()) return status;
  return writer.Append(std::move(batch));
}

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
