#include "trainer/data/replay_transitions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/data/replay_columns.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

class ReplayTransitions final : public TransitionRows {
 public:
  explicit ReplayTransitions(const std::string& folder) : TransitionRows(ReplayName(folder)) {}

  absl::Status Prepare(const std::string& folder) {
    absl::StatusOr<ReplayEpisodes> episodes = ReadReplayEpisodes(folder);
    if (!episodes.ok()) return episodes.status();
    absl::StatusOr<VectorColumns> columns = VectorColumns::Create(episodes->snapshot.layout());
    if (!columns.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(file_, ": ", columns.status().message()));
    }
    columns_ = *std::move(columns);
    observation_size_ = columns_->observation_size();
    action_size_ = columns_->action_size();
    starts_ = std::move(episodes->starts);
    priorities_ = std::move(episodes->priorities);
    snapshot_ = std::move(episodes->snapshot);
    return absl::OkStatus();
  }

  absl::Status Read(int64_t first, int64_t count, float* out) const override {
    return columns_->Read(*snapshot_, snapshot_->first() + static_cast<uint64_t>(first), count,
                          out);
  }

  std::string ValueText(TransitionPart part, int64_t row, int64_t column) const override {
    std::vector<float> values(static_cast<size_t>(width()));
    const std::string place =
        absl::StrCat("transition ", snapshot_->first() + static_cast<uint64_t>(row), ": ");
    if (!Read(row, 1, values.data()).ok()) return place;
    const auto element = [&](const char* name, int64_t offset) {
      return absl::StrCat(place, name, "[", column, "] is ",
                          NumberText(values[static_cast<size_t>(offset + column)]));
    };
    switch (part) {
      case TransitionPart::kObservation:
        return element("observation", 0);
      case TransitionPart::kAction:
        return element("action", observation_size_);
      case TransitionPart::kNextObservation:
        return element("next_observation", observation_size_ + action_size_);
      case TransitionPart::kReward:
      case TransitionPart::kDone:
        return absl::StrCat(place, "reward is ", NumberText(values[values.size() - 2]));
    }
    return place;
  }

  std::string Describe() const override { return snapshot_->Describe(); }
  std::vector<float> TakePriorities() override { return std::move(priorities_); }

 private:
  std::optional<ReplaySnapshot> snapshot_;
  std::optional<VectorColumns> columns_;
  std::vector<float> priorities_;
};

absl::Status FillPriorities(const std::string& name, uint64_t first,
                            std::vector<float>& priorities) {
  for (size_t row = 0; row < priorities.size(); ++row) {
    if (std::isfinite(priorities[row]) && priorities[row] >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": transition ", first + row, ": priority is ", NumberText(priorities[row]),
        "; accepted: a finite number > 0, or 0 for none"));
  }
  const float highest = *std::max_element(priorities.begin(), priorities.end());
  std::replace(priorities.begin(), priorities.end(), 0.0f, highest > 0 ? highest : 1.0f);
  return absl::OkStatus();
}

}  // namespace

std::string ReplayName(const std::string& folder) {
  const std::filesystem::path path(folder);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

absl::StatusOr<ReplayEpisodes> ReadReplayEpisodes(const std::string& folder) {
  std::vector<int64_t> starts = {0};
  std::vector<float> priorities;
  absl::StatusOr<ReplaySnapshot> snapshot =
      ReplaySnapshot::Open(folder, [&](uint64_t, const ReplayRowEnd& end) {
        priorities.push_back(end.priority);
        if (end.flags != 0) starts.push_back(static_cast<int64_t>(priorities.size()));
      });
  if (!snapshot.ok()) return snapshot.status();
  const std::string name = ReplayName(folder);
  const auto rows = static_cast<int64_t>(priorities.size());
  if (rows == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is empty; append transitions to it first"));
  }
  if (starts.back() != rows) starts.push_back(rows);
  absl::Status status = FillPriorities(name, snapshot->first(), priorities);
  if (!status.ok()) return status;
  return ReplayEpisodes{*std::move(snapshot), std::move(starts), std::move(priorities)};
}

absl::StatusOr<VectorColumns> VectorColumns::Create(const ReplayLayout& layout) {
  VectorColumns vectors;
  for (const char* name : {"observations", "actions", "next_observations"}) {
    const std::optional<size_t> found = layout.Find(name);
    const ReplayColumn* const column = found ? &layout.columns()[*found] : nullptr;
    if (column == nullptr || column->is_variable() || column->shape.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          column == nullptr ? absl::StrCat("column ", name, " is missing") : column->Describe(),
          "; accepted by this model: observations, actions and next_observations, each a number or "
          "a vector of a fixed size"));
    }
    vectors.columns_.push_back(*column);
    vectors.offsets_.push_back(layout.offset(*found));
  }
  if (vectors.columns_[0].shape == vectors.columns_[2].shape) return vectors;
  return absl::InvalidArgumentError(absl::StrCat(vectors.columns_[0].Describe(), " and ",
                                                 vectors.columns_[2].Describe(),
                                                 " differ; accepted by this model: the same size"));
}

absl::Status VectorColumns::Read(const ReplaySnapshot& snapshot, uint64_t first, int64_t count,
                                 float* out) const {
  const uint64_t stride = snapshot.layout().row_bytes();
  std::string bytes(static_cast<size_t>(count) * stride, '\0');
  if (absl::Status status = snapshot.Read(first, count, bytes.data()); !status.ok()) return status;
  for (const char* row = bytes.data(); count > 0; --count, row += stride) {
    for (size_t i = 0; i < columns_.size(); ++i) {
      const int64_t elements = columns_[i].elements();
      ToFloats(ElementTypeOf(columns_[i].type), row + offsets_[i], elements, out);
      out += elements;
    }
    ReplayRowEnd end;
    std::memcpy(&end, row + stride - sizeof(end), sizeof(end));
    *out++ = end.reward;
    *out++ = (end.flags & kTerminalFlag) != 0 ? 1.0f : 0.0f;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TransitionRows>> OpenReplayTransitions(const std::string& folder) {
  auto rows = std::make_unique<ReplayTransitions>(folder);
  if (absl::Status status = rows->Prepare(folder); !status.ok()) return status;
  return rows;
}

}  // namespace genesis
