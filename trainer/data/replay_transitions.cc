#include "trainer/data/replay_transitions.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/formats/element_value.h"

namespace genesis {
namespace {

class ReplayTransitions final : public TransitionRows {
 public:
  explicit ReplayTransitions(const std::string& folder) : TransitionRows(ReplayName(folder)) {}

  absl::Status Prepare(const std::string& folder) {
    int64_t row = 0;
    bool last = true;
    absl::StatusOr<ReplaySnapshot> snapshot =
        ReplaySnapshot::Open(folder, [&](uint64_t, const ReplayRowEnd& end) {
          priorities_.push_back(end.priority);
          last = end.flags != 0;
          ++row;
          if (last) starts_.push_back(row);
        });
    if (!snapshot.ok()) return snapshot.status();
    if (row == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_, ": is empty; append transitions to it first"));
    }
    if (!last) starts_.push_back(row);
    snapshot_.emplace(*std::move(snapshot));
    observation_size_ = snapshot_->layout().observation_size;
    action_size_ = snapshot_->layout().action_size;
    return FillPriorities();
  }

  absl::Status Read(int64_t first, int64_t count, float* out) const override {
    return ReadReplayRows(*snapshot_, snapshot_->first() + static_cast<uint64_t>(first), count,
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
  absl::Status FillPriorities() {
    for (size_t row = 0; row < priorities_.size(); ++row) {
      if (std::isfinite(priorities_[row]) && priorities_[row] >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          file_, ": transition ", snapshot_->first() + row, ": priority is ",
          NumberText(priorities_[row]), "; accepted: a finite number > 0, or 0 for none"));
    }
    const float highest = *std::max_element(priorities_.begin(), priorities_.end());
    std::replace(priorities_.begin(), priorities_.end(), 0.0f, highest > 0 ? highest : 1.0f);
    return absl::OkStatus();
  }

  std::optional<ReplaySnapshot> snapshot_;
  std::vector<float> priorities_;
};

}  // namespace

std::string ReplayName(const std::string& folder) {
  const std::filesystem::path path(folder);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

absl::Status ReadReplayRows(const ReplaySnapshot& snapshot, uint64_t first, int64_t count,
                            float* out) {
  const uint64_t stride = snapshot.layout().row_bytes();
  std::string bytes(static_cast<size_t>(count) * stride, '\0');
  if (absl::Status status = snapshot.Read(first, count, bytes.data()); !status.ok()) return status;
  const size_t before = stride - sizeof(ReplayRowEnd);
  for (const char* row = bytes.data(); count > 0; --count, row += stride) {
    ReplayRowEnd end;
    std::memcpy(out, row, before);
    std::memcpy(&end, row + before, sizeof(end));
    out += before / sizeof(float);
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
