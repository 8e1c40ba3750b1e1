#include "trainer/data/array_transitions.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/data/array_file.h"
#include "trainer/data/discrete_actions.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

constexpr int64_t kPieceRows = 65536;

struct Arrays {
  StoredArray observations, actions, rewards, next_observations, terminals, timeouts;
};

absl::Status Unusable(const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
}

absl::StatusOr<Arrays> LoadArrays(ArrayFile& file) {
  Arrays arrays;
  const std::pair<const char*, StoredArray*> wanted[] = {
      {"observations", &arrays.observations}, {"actions", &arrays.actions},
      {"rewards", &arrays.rewards},           {"next_observations", &arrays.next_observations},
      {"terminals", &arrays.terminals},       {"timeouts", &arrays.timeouts}};
  for (const auto& [name, array] : wanted) {
    absl::StatusOr<StoredArray> loaded = file.Load(name);
    if (!loaded.ok()) return loaded.status();
    *array = *std::move(loaded);
  }
  return arrays;
}

bool IsReal(const StoredArray& array) {
  return array.type() == ElementType::kFloat32 || array.type() == ElementType::kFloat64;
}

bool IsFlag(const StoredArray& array) {
  return array.type() == ElementType::kBool || array.type() == ElementType::kUint8;
}

bool IsDiscrete(const StoredArray& actions) {
  return actions.type() == ElementType::kInt64 && actions.shape().size() == 1;
}

absl::Status CheckShapes(const std::string& file, const Arrays& arrays) {
  const std::vector<int64_t>& shape = arrays.observations.shape();
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1) {
    return Unusable(file, absl::StrCat("observations has shape ", ShapeText(shape),
                                       "; accepted: (transitions, columns), each at least 1"));
  }
  const std::vector<int64_t> flat = {shape[0]};
  const auto check = [&](const char* name, const StoredArray& array,
                         const std::vector<int64_t>& want) {
    if (array.shape() == want) return absl::OkStatus();
    return Unusable(file, absl::StrCat(name, " has shape ", ShapeText(array.shape()),
                                       "; accepted, because observations has shape ",
                                       ShapeText(shape), ": ", ShapeText(want)));
  };
  const std::vector<int64_t>& actions = arrays.actions.shape();
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
  const auto check = [&](const char* name, const StoredArray& array, bool good,
                         const char* accepted) {
    if (good) return absl::OkStatus();
    return Unusable(
        file, absl::StrCat(name, " is ", ElementTypeName(array.type()), "; accepted: ", accepted));
  };
  constexpr char kReals[] = "float32 or float64";
  constexpr char kFlags[] = "bool or uint8";
  absl::Status status =
      check("observations", arrays.observations, IsReal(arrays.observations), kReals);
  status.Update(check("next_observations", arrays.next_observations,
                      IsReal(arrays.next_observations), kReals));
  status.Update(check("rewards", arrays.rewards, IsReal(arrays.rewards), kReals));
  status.Update(check("actions", arrays.actions,
                      IsReal(arrays.actions) || IsDiscrete(arrays.actions),
                      "float32 or float64 [N] or [N, A], or int64 [N]"));
  status.Update(check("terminals", arrays.terminals, IsFlag(arrays.terminals), kFlags));
  status.Update(check("timeouts", arrays.timeouts, IsFlag(arrays.timeouts), kFlags));
  return status;
}

// Finds the first row of each episode. A flag is set if its byte is not 0.
absl::Status FindEpisodes(const Arrays& arrays, std::vector<int64_t>& starts) {
  const int64_t rows = arrays.terminals.elements();
  std::vector<char> terminals(static_cast<size_t>(std::min(rows, kPieceRows)));
  std::vector<char> timeouts(terminals.size());
  for (int64_t first = 0; first < rows; first += kPieceRows) {
    const int64_t count = std::min(kPieceRows, rows - first);
    absl::Status status = arrays.terminals.Read(first, count, terminals.data());
    status.Update(arrays.timeouts.Read(first, count, timeouts.data()));
    if (!status.ok()) return status;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool last = terminals[at] != 0 || timeouts[at] != 0;
      if (last || first + i + 1 == rows) starts.push_back(first + i + 1);
    }
  }
  return absl::OkStatus();
}

class ArrayTransitions final : public TransitionRows {
 public:
  ArrayTransitions(std::string file, ArrayFile source, Arrays arrays)
      : TransitionRows(std::move(file)), source_(std::move(source)), arrays_(std::move(arrays)) {}

  absl::Status Prepare() {
    observation_size_ = arrays_.observations.shape()[1];
    if (absl::Status status = FindEpisodes(arrays_, starts_); !status.ok()) return status;
    const std::vector<int64_t>& actions = arrays_.actions.shape();
    action_size_ = actions.size() == 2 ? actions[1] : 1;
    return IsDiscrete(arrays_.actions) ? CountActions() : absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t count, float* out) const override {
    const int64_t width = this->width();
    const bool discrete = IsDiscrete(arrays_.actions);
    // Array, its number of columns, and their first column in the row.
    const std::tuple<const StoredArray*, int64_t, int64_t> parts[] = {
        {&arrays_.observations, observation_size_, 0},
        {&arrays_.actions, discrete ? 1 : action_size_, observation_size_},
        {&arrays_.next_observations, observation_size_, observation_size_ + action_size_},
        {&arrays_.rewards, 1, width - 2},
        {&arrays_.terminals, 1, width - 1}};
    std::vector<float> values;
    for (const auto& [array, columns, offset] : parts) {
      values.resize(static_cast<size_t>(count * columns));
      absl::Status status = array->ReadFloats(first * columns, count * columns, values.data());
      if (!status.ok()) return status;
      for (int64_t row = 0; row < count; ++row) {
        float* const to = out + row * width + offset;
        if (discrete && array == &arrays_.actions) {
          status = PutOneHot(static_cast<int64_t>(values[static_cast<size_t>(row)]), to);
          if (!status.ok()) return status;
        } else {
          std::copy_n(values.begin() + row * columns, columns, to);
        }
      }
    }
    // A uint8 flag may have a nonzero value other than 1.
    for (int64_t row = 0; row < count; ++row) {
      float& done = out[(row + 1) * width - 1];
      done = done != 0.0f ? 1.0f : 0.0f;
    }
    return source_.CheckUnchanged();
  }

  std::string ValueText(TransitionPart part, int64_t row, int64_t column) const override {
    const auto text = [&](const char* name, const StoredArray& array) {
      const bool wide = array.shape().size() == 2;
      const int64_t element = wide ? row * array.shape()[1] + column : row;
      char bytes[sizeof(double)] = {};
      if (!array.Read(element, 1, bytes).ok()) return std::string(name);
      const std::string place = wide ? absl::StrCat(row, ", ", column) : absl::StrCat(row);
      return absl::StrCat(name, "[", place, "] is ", NumberText(ElementValue(array.type(), bytes)));
    };
    switch (part) {
      case TransitionPart::kObservation:
        return text("observations", arrays_.observations);
      case TransitionPart::kAction:
        return text("actions", arrays_.actions);
      case TransitionPart::kNextObservation:
        return text("next_observations", arrays_.next_observations);
      case TransitionPart::kReward:
        return text("rewards", arrays_.rewards);
      case TransitionPart::kDone:
        return text("terminals", arrays_.terminals);
    }
    return "";
  }

  int64_t held_bytes() const override {
    return arrays_.observations.held_bytes() + arrays_.actions.held_bytes() +
           arrays_.next_observations.held_bytes() + arrays_.rewards.held_bytes() +
           arrays_.terminals.held_bytes() + arrays_.timeouts.held_bytes();
  }

 private:
  absl::Status CountActions() {
    int64_t highest = 0;
    std::vector<int64_t> actions(static_cast<size_t>(std::min(size(), kPieceRows)));
    for (int64_t first = 0; first < size(); first += kPieceRows) {
      const int64_t count = std::min(kPieceRows, size() - first);
      absl::Status status =
          arrays_.actions.Read(first, count, reinterpret_cast<char*>(actions.data()));
      if (!status.ok()) return status;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t action = actions[static_cast<size_t>(i)];
        if (action < 0 || action >= kMaxDiscreteActions) {
          return Unusable(file_, absl::StrCat("actions[", first + i, "] is ", action,
                                              "; accepted for integer actions: 0 to ",
                                              kMaxDiscreteActions - 1));
        }
        highest = std::max(highest, action);
      }
    }
    action_size_ = highest + 1;
    return absl::OkStatus();
  }

  absl::Status PutOneHot(int64_t action, float* to) const {
    if (action < 0 || action >= action_size_) {
      return absl::DataLossError(absl::StrCat(file_, ": was changed while it was in use"));
    }
    std::fill_n(to, action_size_, 0.0f);
    to[action] = 1.0f;
    return absl::OkStatus();
  }

  const ArrayFile source_;
  const Arrays arrays_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TransitionRows>> OpenArrayTransitions(const std::string& path,
                                                                     int64_t memory_limit_bytes) {
  absl::StatusOr<ArrayFile> source = ArrayFile::Open(path, "", memory_limit_bytes);
  if (!source.ok()) return source.status();
  absl::StatusOr<Arrays> arrays = LoadArrays(*source);
  if (!arrays.ok()) return arrays.status();
  const std::string file = std::filesystem::path(path).filename().string();
  absl::Status status = CheckShapes(file, *arrays);
  status.Update(CheckTypes(file, *arrays));
  if (!status.ok()) return status;
  auto rows = std::make_unique<ArrayTransitions>(file, *std::move(source), *std::move(arrays));
  if (status = rows->Prepare(); !status.ok()) return status;
  return rows;
}

}  // namespace genesis
