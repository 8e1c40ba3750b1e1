#include "trainer/data/transition_fields.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace genesis {
namespace {

constexpr size_t kNamedColumns = 8;

// Returns "observation[2], reward", or "" for none.
std::string Listed(std::vector<std::string> names) {
  const size_t named = std::min(names.size(), kNamedColumns);
  const size_t left = names.size() - named;
  names.resize(named);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      left > 0 ? absl::StrCat(" and ", left, " more") : "");
}

std::string ColumnName(const char* field, int64_t column, const ColumnStatistics& columns) {
  return columns.mean.size() == 1 ? field : absl::StrCat(field, "[", column, "]");
}

}  // namespace

std::vector<Field> TransitionFields(int64_t observation, int64_t action, int64_t steps) {
  std::vector<Field> fields = {{.name = "observation", .shape = {observation}},
                               {.name = "action", .shape = {action}},
                               {.name = "change", .shape = {observation}},
                               {.name = "reward", .shape = {1}},
                               {.name = "done", .shape = {1}}};
  if (steps == 1) return fields;
  for (Field& field : fields) field.shape.insert(field.shape.begin(), steps);
  return fields;
}

void PutTransition(const float* row, int64_t observation_size, int64_t action_size, int64_t place,
                   absl::Span<std::byte* const> out) {
  const float* const action = row + observation_size;
  const float* const next = action + action_size;
  const auto put = [place](std::byte* to, const float* from, int64_t columns) {
    const size_t bytes = static_cast<size_t>(columns) * sizeof(float);
    std::memcpy(to + static_cast<size_t>(place) * bytes, from, bytes);
  };
  put(out[0], row, observation_size);
  put(out[1], action, action_size);
  for (int64_t c = 0; c < observation_size; ++c) {
    const float change = next[c] - row[c];
    std::memcpy(out[2] + static_cast<size_t>(place * observation_size + c) * sizeof(float), &change,
                sizeof(float));
  }
  put(out[3], next + observation_size, 1);
  put(out[4], next + observation_size + 1, 1);
}

TransitionStatistics::TransitionStatistics(int64_t observation_size, int64_t action_size)
    : observation_size_(observation_size),
      action_size_(action_size),
      observation_(observation_size),
      action_(action_size),
      change_(observation_size),
      next_observation_(observation_size),
      reward_(1),
      difference_(static_cast<size_t>(observation_size)) {}

template <auto kAdd>
void TransitionStatistics::Add(const float* row) {
  const float* const action = row + observation_size_;
  const float* const next = action + action_size_;
  for (size_t i = 0; i < difference_.size(); ++i) difference_[i] = next[i] - row[i];
  (observation_.*kAdd)(row);
  (action_.*kAdd)(action);
  (change_.*kAdd)(difference_.data());
  (next_observation_.*kAdd)(next);
  (reward_.*kAdd)(next + observation_size_);
}

template void TransitionStatistics::Add<&StatisticsBuilder::AddToMean>(const float* row);
template void TransitionStatistics::Add<&StatisticsBuilder::AddToDeviation>(const float* row);

std::map<std::string, ColumnStatistics> TransitionStatistics::Finish() const {
  return {{"observation", observation_.Finish()},
          {"action", action_.Finish()},
          {"change", change_.FinishDifferences(observation_)},
          {"next_observation", next_observation_.Finish()},
          {"reward", reward_.Finish()}};
}

std::string ConstantColumns(const std::map<std::string, ColumnStatistics>& statistics) {
  std::vector<std::string> constant;
  for (const char* field : {"observation", "action", "reward"}) {
    const ColumnStatistics& columns = statistics.at(field);
    for (const int64_t column : columns.constant) {
      constant.push_back(ColumnName(field, column, columns));
    }
  }
  // A column whose change is constant is easy to predict, so it looks learned immediately.
  std::vector<std::string> unchanging;
  const ColumnStatistics& observations = statistics.at("observation");
  for (const int64_t column : statistics.at("change").constant) {
    if (!std::binary_search(observations.constant.begin(), observations.constant.end(), column)) {
      unchanging.push_back(ColumnName("observation", column, observations));
    }
  }
  std::string text;
  if (!constant.empty()) {
    absl::StrAppend(&text, "; constant and not normalised: ", Listed(std::move(constant)));
  }
  if (!unchanging.empty()) {
    absl::StrAppend(&text, "; change is constant up to rounding of float32: ",
                    Listed(std::move(unchanging)), " (a large offset hides changes: subtract it)");
  }
  return text;
}

}  // namespace genesis
