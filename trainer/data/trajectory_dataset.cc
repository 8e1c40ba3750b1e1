#include "trainer/data/trajectory_dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/data/npz_reader.h"

namespace genesis {
namespace {

// One-hot columns; more distinct actions than this are more likely a mistake than a game.
constexpr int64_t kMaxDiscreteActions = 1024;
// Below this a column's spread is rounding noise of float32, not information.
constexpr double kConstantColumn = 1e-6;

struct Arrays {
  NpyArray observations, actions, rewards, next_observations, terminals, timeouts;
};

absl::Status Unusable(const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
}

absl::StatusOr<Arrays> ReadArrays(const std::string& path) {
  const absl::StatusOr<NpzReader> reader = NpzReader::Open(path);
  if (!reader.ok()) return reader.status();
  Arrays arrays;
  const std::pair<const char*, NpyArray*> wanted[] = {
      {"observations", &arrays.observations}, {"actions", &arrays.actions},
      {"rewards", &arrays.rewards},           {"next_observations", &arrays.next_observations},
      {"terminals", &arrays.terminals},       {"timeouts", &arrays.timeouts}};
  for (const auto& [name, array] : wanted) {
    absl::StatusOr<NpyArray> read = reader->Read(name);
    if (!read.ok()) return read.status();
    *array = *std::move(read);
  }
  return arrays;
}

bool IsFloat(const NpyArray& array) {
  return array.type == NpyType::kFloat32 || array.type == NpyType::kFloat64;
}

bool IsFlag(const NpyArray& array) {
  return array.type == NpyType::kBool || array.type == NpyType::kUint8;
}

absl::Status CheckShapes(const std::string& file, const Arrays& arrays) {
  const std::vector<int64_t>& shape = arrays.observations.shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1) {
    return Unusable(file, absl::StrCat("observations has shape ", ShapeText(shape),
                                       "; accepted: (transitions, columns), each at least 1"));
  }
  const std::vector<int64_t> flat = {shape[0]};
  const auto check = [&](const char* name, const NpyArray& array,
                         const std::vector<int64_t>& want) {
    if (array.shape == want) return absl::OkStatus();
    return Unusable(file, absl::StrCat(name, " has shape ", ShapeText(array.shape),
                                       "; accepted, because observations has shape ",
                                       ShapeText(shape), ": ", ShapeText(want)));
  };
  const std::vector<int64_t>& actions = arrays.actions.shape;
  const bool columns = actions.size() == 2 && actions[0] == shape[0] && actions[1] >= 1;
  if (!columns && actions != flat) {
    return Unusable(file, absl::StrCat("actions has shape ", ShapeText(actions), "; accepted: ",
                                       ShapeText(flat), " or (", shape[0], ", columns)"));
  }
  absl::Status status = check("next_observations", arrays.next_observations, shape);
  status.Update(check("rewards", arrays.rewards, flat));
  status.Update(check("terminals", arrays.terminals, flat));
  status.Update(check("timeouts", arrays.timeouts, flat));
  return status;
}

absl::Status CheckTypes(const std::string& file, const Arrays& arrays) {
  const auto check = [&](const char* name, const NpyArray& array, bool good, const char* accepted) {
    if (good) return absl::OkStatus();
    return Unusable(file,
                    absl::StrCat(name, " is ", NpyTypeName(array.type), "; accepted: ", accepted));
  };
  const bool discrete = arrays.actions.type == NpyType::kInt64 && arrays.actions.shape.size() == 1;
  constexpr char kFloats[] = "float32 or float64";
  constexpr char kFlags[] = "bool or uint8";
  absl::Status status =
      check("observations", arrays.observations, IsFloat(arrays.observations), kFloats);
  status.Update(check("next_observations", arrays.next_observations,
                      IsFloat(arrays.next_observations), kFloats));
  status.Update(check("rewards", arrays.rewards, IsFloat(arrays.rewards), kFloats));
  status.Update(check("actions", arrays.actions, IsFloat(arrays.actions) || discrete,
                      "float32 or float64 [N] or [N, A], or int64 [N]"));
  status.Update(check("terminals", arrays.terminals, IsFlag(arrays.terminals), kFlags));
  status.Update(check("timeouts", arrays.timeouts, IsFlag(arrays.timeouts), kFlags));
  return status;
}

// First row of each episode, and at the end the number of rows.
std::vector<int64_t> EpisodeStarts(const Arrays& arrays) {
  std::vector<int64_t> starts = {0};
  const int64_t rows = arrays.terminals.size();
  for (int64_t row = 0; row < rows; ++row) {
    const bool last = arrays.terminals.At(row) != 0 || arrays.timeouts.At(row) != 0;
    if (last || row + 1 == rows) starts.push_back(row + 1);
  }
  return starts;
}

// "observations[123, 1] is nan (episode 7, step 34); ...". All numbers count from 0.
std::string NonFiniteText(const char* name, const NpyArray& array, int64_t element,
                          const std::vector<int64_t>& starts) {
  const int64_t columns = array.shape.size() == 2 ? array.shape[1] : 1;
  const int64_t row = element / columns;
  const auto after = std::upper_bound(starts.begin(), starts.end(), row);
  const int64_t episode = after - starts.begin() - 1;
  const std::string place =
      array.shape.size() == 2 ? absl::StrCat(row, ", ", element % columns) : absl::StrCat(row);
  const double value = array.At(element);
  const std::string shown = std::isnan(value) ? "nan" : absl::StrCat(value);
  return absl::StrCat(name, "[", place, "] is ", shown, " (episode ", episode, ", step ",
                      row - *(after - 1),
                      "); every value must be finite; remove that episode or repair the recording");
}

absl::StatusOr<std::vector<float>> FiniteFloats(const std::string& file, const char* name,
                                                const NpyArray& array,
                                                const std::vector<int64_t>& starts) {
  std::vector<float> values(static_cast<size_t>(array.size()));
  for (int64_t i = 0; i < array.size(); ++i) {
    const auto value = static_cast<float>(array.At(i));
    if (!std::isfinite(value)) return Unusable(file, NonFiniteText(name, array, i, starts));
    values[static_cast<size_t>(i)] = value;
  }
  return values;
}

absl::Status FillActions(const std::string& file, const NpyArray& actions,
                         const std::vector<int64_t>& starts, TrajectoryDataset& dataset) {
  if (actions.type != NpyType::kInt64) {
    absl::StatusOr<std::vector<float>> values = FiniteFloats(file, "actions", actions, starts);
    if (!values.ok()) return values.status();
    dataset.action_size = actions.shape.size() == 2 ? actions.shape[1] : 1;
    dataset.actions = *std::move(values);
    return absl::OkStatus();
  }
  int64_t highest = 0;
  for (int64_t row = 0; row < actions.size(); ++row) {
    const double action = actions.At(row);
    if (action < 0 || action >= kMaxDiscreteActions) {
      return Unusable(
          file, absl::StrCat("actions[", row, "] is ", action,
                             "; accepted for integer actions: 0 to ", kMaxDiscreteActions - 1));
    }
    highest = std::max(highest, static_cast<int64_t>(action));
  }
  dataset.action_size = highest + 1;
  dataset.actions.assign(static_cast<size_t>(dataset.size * dataset.action_size), 0.0f);
  for (int64_t row = 0; row < actions.size(); ++row) {
    const int64_t hot = row * dataset.action_size + static_cast<int64_t>(actions.At(row));
    dataset.actions[static_cast<size_t>(hot)] = 1.0f;
  }
  return absl::OkStatus();
}

ColumnStatistics Statistics(const std::vector<float>& values, int64_t columns, int64_t rows) {
  ColumnStatistics statistics;
  for (int64_t column = 0; column < columns; ++column) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) {
      sum += values[static_cast<size_t>(row * columns + column)];
    }
    const double mean = sum / static_cast<double>(rows);
    double squares = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double off = values[static_cast<size_t>(row * columns + column)] - mean;
      squares += off * off;
    }
    const double deviation = std::sqrt(squares / static_cast<double>(rows));
    const bool constant = deviation <= kConstantColumn * std::max(1.0, std::abs(mean));
    statistics.mean.push_back(static_cast<float>(mean));
    statistics.deviation.push_back(constant ? 1.0f : static_cast<float>(deviation));
  }
  return statistics;
}

void FillStatistics(TrajectoryDataset& dataset) {
  const int64_t rows = dataset.training_size;
  const int64_t columns = dataset.observation_size;
  std::vector<float> changes(dataset.observations.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    changes[i] = dataset.next_observations[i] - dataset.observations[i];
  }
  dataset.observation_statistics = Statistics(dataset.observations, columns, rows);
  dataset.action_statistics = Statistics(dataset.actions, dataset.action_size, rows);
  dataset.reward_statistics = Statistics(dataset.rewards, 1, rows);
  dataset.change_statistics = Statistics(changes, columns, rows);
  dataset.next_observation_statistics = Statistics(dataset.next_observations, columns, rows);
}

absl::Status SplitEpisodes(const std::string& file, const std::vector<int64_t>& starts,
                           double holdout_fraction, TrajectoryDataset& dataset) {
  dataset.episodes = static_cast<int64_t>(starts.size()) - 1;
  if (dataset.episodes < 2) {
    return Unusable(file, absl::StrCat("has ", dataset.episodes,
                                       " episode; accepted: at least 2, one to train on and one to "
                                       "hold out; mark episode ends in terminals or timeouts"));
  }
  const auto wanted = std::llround(holdout_fraction * static_cast<double>(dataset.episodes));
  const int64_t held_out = std::clamp<int64_t>(wanted, 1, dataset.episodes - 1);
  dataset.training_episodes = dataset.episodes - held_out;
  dataset.training_size = starts[static_cast<size_t>(dataset.training_episodes)];
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrajectoryDataset> LoadTrajectories(const training::v1::TrajectoryFileSpec& spec) {
  absl::StatusOr<Arrays> arrays = ReadArrays(spec.path());
  if (!arrays.ok()) return arrays.status();
  const std::string file = std::filesystem::path(spec.path()).filename().string();
  absl::Status status = CheckShapes(file, *arrays);
  status.Update(CheckTypes(file, *arrays));
  if (!status.ok()) return status;

  TrajectoryDataset dataset;
  dataset.size = arrays->observations.shape[0];
  dataset.observation_size = arrays->observations.shape[1];
  const std::vector<int64_t> starts = EpisodeStarts(*arrays);
  status = SplitEpisodes(file, starts, spec.holdout_fraction(), dataset);
  status.Update(FillActions(file, arrays->actions, starts, dataset));
  const std::tuple<const char*, const NpyArray*, std::vector<float>*> columns[] = {
      {"observations", &arrays->observations, &dataset.observations},
      {"rewards", &arrays->rewards, &dataset.rewards},
      {"next_observations", &arrays->next_observations, &dataset.next_observations},
      {"terminals", &arrays->terminals, &dataset.dones}};
  for (const auto& [name, array, target] : columns) {
    absl::StatusOr<std::vector<float>> values = FiniteFloats(file, name, *array, starts);
    status.Update(values.status());
    if (!status.ok()) return status;
    *target = *std::move(values);
  }
  FillStatistics(dataset);
  return dataset;
}

}  // namespace genesis
