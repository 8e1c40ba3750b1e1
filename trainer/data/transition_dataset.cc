#include "trainer/data/transition_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/data/holdout.h"
#include "trainer/data/transition_fields.h"

namespace genesis {
namespace {

// Rows are read in pieces of about this size.
constexpr int64_t kReadBytes = 1 << 20;

absl::Status UnusableRows(const std::string& file, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
}

}  // namespace

TransitionDataset::TransitionDataset(std::unique_ptr<TransitionRows> rows,
                                     const TransitionOptions& options)
    : options_(options),
      rows_(std::move(rows)),
      observation_size_(rows_->observation_size()),
      action_size_(rows_->action_size()),
      width_(rows_->width()),
      starts_(rows_->starts()),
      file_(rows_->file()),
      described_(rows_->Describe()),
      fields_(TransitionFields(observation_size_, action_size_, options.rollout_steps)) {}

absl::StatusOr<std::unique_ptr<Dataset>> TransitionDataset::Open(
    std::unique_ptr<TransitionRows> rows, const TransitionOptions& options) {
  std::unique_ptr<TransitionDataset> dataset(new TransitionDataset(std::move(rows), options));
  if (absl::Status status = dataset->SplitEpisodes(); !status.ok()) return status;
  dataset->CutWindows();
  if (absl::Status status = dataset->CheckWindows(); !status.ok()) return status;
  const int64_t row_bytes = dataset->width_ * static_cast<int64_t>(sizeof(float));
  const int64_t room = options.memory_limit_bytes - dataset->rows_->held_bytes();
  const bool keep = dataset->starts_.back() <= room / row_bytes;
  if (absl::Status status = dataset->ReadAll(keep); !status.ok()) return status;
  dataset->TakePriorities();
  if (keep) dataset->rows_.reset();
  return dataset;
}

absl::Status TransitionDataset::SplitEpisodes() {
  const auto episodes = static_cast<int64_t>(starts_.size()) - 1;
  if (episodes < 2) {
    return UnusableRows(file_,
                        absl::StrCat("has ", episodes,
                                     " episode; accepted: at least 2, one to train on and one "
                                     "to hold out; mark episode ends in terminals or timeouts"));
  }
  training_episodes_ = episodes - HeldOut(episodes, options_.holdout_fraction);
  return absl::OkStatus();
}

void TransitionDataset::CutWindows() {
  first_examples_.reserve(starts_.size());
  for (size_t episode = 0; episode + 1 < starts_.size(); ++episode) {
    const int64_t steps = starts_[episode + 1] - starts_[episode];
    const int64_t windows = std::max<int64_t>(0, steps - options_.rollout_steps + 1);
    if (windows == 0) ++short_episodes_;
    first_examples_.push_back(first_examples_.back() + windows);
  }
}

absl::Status TransitionDataset::CheckWindows() const {
  const auto longest = [this](int64_t begin, int64_t end) {
    int64_t steps = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto episode = static_cast<size_t>(i);
      steps = std::max(steps, starts_[episode + 1] - starts_[episode]);
    }
    return steps;
  };
  const auto episodes = static_cast<int64_t>(starts_.size()) - 1;
  for (const bool training : {true, false}) {
    const int64_t steps =
        training ? longest(0, training_episodes_) : longest(training_episodes_, episodes);
    if (steps >= options_.rollout_steps) continue;
    return UnusableRows(
        file_, absl::StrCat("no episode ", training ? "to train on" : "that is held out",
                            " has model.world_model.rollout_steps = ", options_.rollout_steps,
                            " steps, the longest has ", steps, "; accepted: 1 to ", steps));
  }
  return absl::OkStatus();
}

int64_t TransitionDataset::training_size() const {
  return first_examples_[static_cast<size_t>(training_episodes_)];
}

absl::Status TransitionDataset::ReadAll(bool keep) {
  const int64_t rows = starts_.back();
  const int64_t training_rows = starts_[static_cast<size_t>(training_episodes_)];
  const int64_t piece =
      std::max<int64_t>(1, kReadBytes / (width_ * static_cast<int64_t>(sizeof(float))));
  TransitionStatistics statistics(observation_size_, action_size_);
  if (keep) table_.resize(static_cast<size_t>(rows * width_));
  std::vector<float> values(static_cast<size_t>(std::min(piece, rows) * width_));
  for (int64_t first = 0; first < rows; first += piece) {
    const int64_t count = std::min(piece, rows - first);
    float* const read = keep ? table_.data() + first * width_ : values.data();
    if (absl::Status status = rows_->Read(first, count, read); !status.ok()) return status;
    for (int64_t i = 0; i < count; ++i) {
      const float* const row = read + i * width_;
      if (absl::Status status = CheckFinite(first + i, row); !status.ok()) return status;
      if (first + i < training_rows) statistics.AddToMean(row);
    }
  }
  for (int64_t first = 0; first < training_rows; first += piece) {
    const int64_t count = std::min(piece, training_rows - first);
    float* const read = keep ? table_.data() + first * width_ : values.data();
    absl::Status status = keep ? absl::OkStatus() : rows_->Read(first, count, read);
    if (!status.ok()) return status;
    for (int64_t i = 0; i < count; ++i) statistics.AddToDeviation(read + i * width_);
  }
  statistics_ = statistics.Finish();
  return absl::OkStatus();
}

// Returns "(episode 7, step 34)". Both count from 0.
std::string TransitionDataset::Place(int64_t row) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), row);
  return absl::StrCat("(episode ", after - starts_.begin() - 1, ", step ", row - *(after - 1), ")");
}

absl::Status TransitionDataset::CheckFinite(int64_t row, const float* values) const {
  const std::pair<TransitionPart, int64_t> parts[] = {
      {TransitionPart::kAction, observation_size_},
      {TransitionPart::kObservation, 0},
      {TransitionPart::kReward, 2 * observation_size_ + action_size_},
      {TransitionPart::kNextObservation, observation_size_ + action_size_},
      {TransitionPart::kDone, 2 * observation_size_ + action_size_ + 1}};
  const auto finite = [](float value) { return std::isfinite(value); };
  if (std::all_of(values, values + width_, finite)) {
    const float* const next = values + observation_size_ + action_size_;
    for (int64_t i = 0; i < observation_size_; ++i) {
      if (std::isfinite(next[i] - values[i])) continue;
      return UnusableRows(
          file_,
          absl::StrCat(rows_->ValueText(TransitionPart::kObservation, row, i), " and ",
                       rows_->ValueText(TransitionPart::kNextObservation, row, i), " ", Place(row),
                       "; their difference must be a finite float32; scale the "
                       "observations down"));
    }
    return absl::OkStatus();
  }
  for (const auto& [part, offset] : parts) {
    const bool wide =
        part == TransitionPart::kObservation || part == TransitionPart::kNextObservation;
    const int64_t columns = wide                              ? observation_size_
                            : part == TransitionPart::kAction ? action_size_
                                                              : 1;
    for (int64_t column = 0; column < columns; ++column) {
      if (std::isfinite(values[offset + column])) continue;
      return UnusableRows(file_,
                          absl::StrCat(rows_->ValueText(part, row, column), " ", Place(row),
                                       "; every value must be finite; remove that episode or "
                                       "repair the recording"));
    }
  }
  return absl::OkStatus();
}

int64_t TransitionDataset::FirstRow(int64_t example) const {
  if (options_.rollout_steps == 1) return example;
  const auto after = std::upper_bound(first_examples_.begin(), first_examples_.end(), example);
  const auto episode = static_cast<size_t>(after - first_examples_.begin() - 1);
  return starts_[episode] + example - first_examples_[episode];
}

void TransitionDataset::TakePriorities() {
  const std::vector<float> rows = rows_->TakePriorities();
  if (rows.empty()) return;
  priorities_.reserve(static_cast<size_t>(training_size()));
  for (int64_t example = 0; example < training_size(); ++example) {
    // A window has the priority of its step with the highest priority.
    const auto first = rows.begin() + FirstRow(example);
    priorities_.push_back(*std::max_element(first, first + options_.rollout_steps));
  }
}

absl::Status TransitionDataset::Gather(absl::Span<const int64_t> examples,
                                       absl::Span<std::byte* const> out) const {
  const int64_t steps = options_.rollout_steps;
  std::vector<float> read(table_.empty() ? static_cast<size_t>(steps * width_) : 0);
  for (size_t i = 0; i < examples.size(); ++i) {
    const int64_t first = FirstRow(examples[i]);
    const float* rows = table_.data() + first * width_;
    if (table_.empty()) {
      if (absl::Status status = rows_->Read(first, steps, read.data()); !status.ok()) return status;
      rows = read.data();
    }
    for (int64_t step = 0; step < steps; ++step) {
      PutTransition(rows + step * width_, observation_size_, action_size_,
                    static_cast<int64_t>(i) * steps + step, out);
    }
  }
  return absl::OkStatus();
}

std::string TransitionDataset::Describe() const {
  const int64_t steps = options_.rollout_steps;
  const auto held_out = static_cast<int64_t>(starts_.size()) - 1 - training_episodes_;
  const std::string unit =
      steps == 1 ? " transitions of " : absl::StrCat(" windows of ", steps, " steps of ");
  std::string text =
      absl::StrCat(training_size(), unit, training_episodes_, " episodes to train on, ",
                   size() - training_size(), " of ", held_out, " held out");
  if (short_episodes_ > 0) {
    absl::StrAppend(&text, "; ", short_episodes_, " episodes are shorter and left out");
  }
  if (!described_.empty()) absl::StrAppend(&text, "; ", described_);
  absl::StrAppend(&text, ConstantColumns(statistics_));
  if (table_.empty()) absl::StrAppend(&text, "; read from the file while training");
  return text;
}

}  // namespace genesis
