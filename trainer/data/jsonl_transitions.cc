#include "trainer/data/jsonl_transitions.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/data/discrete_actions.h"
#include "trainer/formats/element_value.h"
#include "trainer/formats/json_cursor.h"
#include "trainer/formats/line_file.h"

namespace genesis {
namespace {

struct Transition {
  std::vector<double> observation, action, next_observation;
  double reward = 0;
  bool terminal = false, timeout = false;
  bool discrete = false;  // The action is one integer outside of brackets.
};

bool ParseNumbers(JsonCursor& json, std::vector<double>& numbers, bool* discrete) {
  bool whole = false;
  numbers.clear();
  if (json.Peek() != '[') {
    if (!json.Number(numbers.emplace_back(), whole)) return false;
    if (discrete != nullptr) *discrete = whole;
    return true;
  }
  return json.Array([&] { return json.Number(numbers.emplace_back(), whole); });
}

bool ParseFlag(JsonCursor& json, bool& flag) {
  const char next = json.Peek();
  if (next == 't' || next == 'f') return json.Bool(flag);
  int64_t number = 0;
  if (!json.Count(number) || number > 1) return json.Fail("accepted: true, false, 1 or 0");
  flag = number == 1;
  return true;
}

// Parses a line into `transition`. Returns the error, or "".
std::string ParseLine(absl::string_view line, Transition& transition) {
  constexpr const char* kNames[] = {"observation",      "action",   "reward",
                                    "next_observation", "terminal", "timeout"};
  bool seen[std::size(kNames)] = {};
  bool whole = false;
  transition.discrete = false;
  JsonCursor json(line);
  const bool parsed = json.Object([&](const std::string& key) {
    const auto* const name = std::find(std::begin(kNames), std::end(kNames), key);
    const auto index = static_cast<size_t>(name - std::begin(kNames));
    if (name == std::end(kNames)) return json.Skip();
    if (std::exchange(seen[index], true)) return json.Fail(absl::StrCat(key, " is there twice"));
    switch (index) {
      case 0:
        return ParseNumbers(json, transition.observation, nullptr);
      case 1:
        return ParseNumbers(json, transition.action, &transition.discrete);
      case 2:
        return json.Number(transition.reward, whole);
      case 3:
        return ParseNumbers(json, transition.next_observation, nullptr);
      case 4:
        return ParseFlag(json, transition.terminal);
      default:
        return ParseFlag(json, transition.timeout);
    }
  });
  if (!parsed || !json.End()) return absl::StrCat("is not a transition in JSON ", json.fault());
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (seen[i]) continue;
    return absl::StrCat("has no ", kNames[i],
                        "; accepted: observation, action, reward, next_observation, terminal and "
                        "timeout in every line");
  }
  return "";
}

class JsonlTransitions final : public TransitionRows {
 public:
  explicit JsonlTransitions(std::shared_ptr<const DataFile> file)
      : TransitionRows(file->name()), lines_(std::move(file)) {}

  absl::Status Prepare() {
    Transition transition;
    bool last = true;
    absl::Status status = lines_.Scan([&](int64_t row, absl::string_view line) {
      if (absl::Status parsed = Parse(row, line, transition); !parsed.ok()) return parsed;
      last = transition.terminal || transition.timeout;
      if (last) starts_.push_back(row + 1);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    if (lines_.size() == 0) return Unusable("is empty; accepted: one transition per line");
    if (!last) starts_.push_back(lines_.size());
    if (discrete_) action_size_ = highest_action_ + 1;
    prepared_ = true;
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t count, float* out) const override {
    // Text takes several times the space of its numbers, so read few lines at a time.
    constexpr int64_t kLines = 256;
    for (int64_t done = 0; done < count; done += kLines) {
      const int64_t now = std::min(kLines, count - done);
      absl::Status status = ReadLines(first + done, now, out + done * width());
      if (!status.ok()) return status;
    }
    return lines_.file().CheckUnchanged();
  }

  std::string ValueText(TransitionPart part, int64_t row, int64_t column) const override {
    std::string text;
    Transition transition;
    const auto at = static_cast<size_t>(column);
    const bool known = lines_.Read(row, 1, text).ok() && ParseLine(text, transition).empty();
    const std::string line = absl::StrCat("line ", row + 1, ": ");
    const auto element = [&](const char* name, const std::vector<double>& values) {
      if (!known || at >= values.size()) return absl::StrCat(line, name);
      return absl::StrCat(line, name, "[", column, "] is ", NumberText(values[at]));
    };
    switch (part) {
      case TransitionPart::kObservation:
        return element("observation", transition.observation);
      case TransitionPart::kAction:
        return element("action", transition.action);
      case TransitionPart::kNextObservation:
        return element("next_observation", transition.next_observation);
      case TransitionPart::kReward:
        return absl::StrCat(line, "reward is ", NumberText(transition.reward));
      case TransitionPart::kDone:
        return absl::StrCat(line, "terminal");
    }
    return "";
  }

 private:
  absl::Status Unusable(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ": ", what));
  }

  static float* Put(const std::vector<double>& values, float* out) {
    for (const double value : values) *out++ = static_cast<float>(value);
    return out;
  }

  absl::Status ReadLines(int64_t first, int64_t count, float* out) const {
    std::string text;
    if (absl::Status status = lines_.Read(first, count, text); !status.ok()) return status;
    Transition transition;
    int64_t row = first;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
      if (row == first + count) break;
      if (absl::Status status = Check(row++, line, transition); !status.ok()) return status;
      out = Put(transition.observation, out);
      if (discrete_) {
        std::fill_n(out, action_size_, 0.0f);
        out[static_cast<int64_t>(transition.action[0])] = 1.0f;
        out += action_size_;
      } else {
        out = Put(transition.action, out);
      }
      out = Put(transition.next_observation, out);
      *out++ = static_cast<float>(transition.reward);
      *out++ = transition.terminal ? 1.0f : 0.0f;
    }
    return absl::OkStatus();
  }

  // Parses a line. The first line sets the sizes that all other lines must have.
  absl::Status Parse(int64_t row, absl::string_view line, Transition& transition) {
    if (row > 0) return Check(row, line, transition);
    if (const std::string fault = ParseLine(line, transition); !fault.empty()) {
      return Unusable(absl::StrCat("line 1 ", fault));
    }
    observation_size_ = static_cast<int64_t>(transition.observation.size());
    action_size_ = static_cast<int64_t>(transition.action.size());
    discrete_ = transition.discrete;
    if (observation_size_ == 0 || action_size_ == 0) {
      return Unusable("line 1: observation and action have no number; accepted: one and more");
    }
    return Check(row, line, transition);
  }

  absl::Status Check(int64_t row, absl::string_view line, Transition& transition) const;

  LineFile lines_;
  bool discrete_ = false;
  bool prepared_ = false;
  mutable int64_t highest_action_ = 0;  // Constant once prepared_ is set.
};

absl::Status JsonlTransitions::Check(int64_t row, absl::string_view line,
                                     Transition& transition) const {
  const std::string place = absl::StrCat("line ", row + 1);
  if (const std::string fault = ParseLine(line, transition); !fault.empty()) {
    return Unusable(absl::StrCat(place, " ", fault));
  }
  const auto sized = [&](const char* name, const std::vector<double>& values, int64_t want) {
    if (static_cast<int64_t>(values.size()) == want) return absl::OkStatus();
    return Unusable(absl::StrCat(place, ": ", name, " has ", values.size(),
                                 " numbers; accepted, because line 1 has ", want, ": ", want));
  };
  absl::Status status = sized("observation", transition.observation, observation_size_);
  status.Update(sized("next_observation", transition.next_observation, observation_size_));
  if (!status.ok()) return status;
  if (!discrete_) {
    if (!transition.discrete) return sized("action", transition.action, action_size_);
    return Unusable(absl::StrCat(place, ": action is the whole number ", transition.action[0],
                                 "; line 1 has a real action; write [", transition.action[0],
                                 "] or ", transition.action[0], ".0"));
  }
  const double action = transition.action.empty() ? -1 : transition.action[0];
  if (!transition.discrete || action < 0 || action >= static_cast<double>(kMaxDiscreteActions)) {
    return Unusable(absl::StrCat(
        place, ": action is ", transition.discrete ? NumberText(action) : "not a whole number",
        "; accepted, because line 1 has a discrete action: 0 to ", kMaxDiscreteActions - 1));
  }
  if (!prepared_) {
    highest_action_ = std::max(highest_action_, static_cast<int64_t>(action));
  } else if (action >= static_cast<double>(action_size_)) {
    return absl::DataLossError(
        absl::StrCat(file_, ": ", place, " was changed while it was in use"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TransitionRows>> OpenJsonlTransitions(const std::string& path) {
  absl::StatusOr<std::shared_ptr<const DataFile>> file = DataFile::Open(path);
  if (!file.ok()) return file.status();
  auto rows = std::make_unique<JsonlTransitions>(*std::move(file));
  if (absl::Status status = rows->Prepare(); !status.ok()) return status;
  return rows;
}

}  // namespace genesis
