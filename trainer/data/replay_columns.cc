#include "trainer/data/replay_columns.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/data/holdout.h"
#include "trainer/data/replay_transitions.h"
#include "trainer/formats/npy_header.h"

namespace genesis {
namespace {

// Transitions of a snapshot as examples.
class ColumnDataset final : public Dataset {
 public:
  explicit ColumnDataset(const std::string& folder) : file_(ReplayName(folder)) {}

  absl::Status Prepare(const std::string& folder, double holdout_fraction) {
    absl::StatusOr<ReplayEpisodes> episodes = ReadReplayEpisodes(folder);
    if (!episodes.ok()) return episodes.status();
    absl::StatusOr<ReplayColumns> columns = ReplayColumns::Create(episodes->snapshot.layout());
    if (!columns.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(file_, ": ", columns.status().message()));
    }
    const auto count = static_cast<int64_t>(episodes->starts.size()) - 1;
    if (count < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_, ": has ", count,
                       " episode; accepted: at least 2, one to train on and one to hold out; mark "
                       "episode ends in terminals or timeouts"));
    }
    episodes_ = count;
    training_episodes_ = count - HeldOut(count, holdout_fraction);
    training_size_ = episodes->starts[static_cast<size_t>(training_episodes_)];
    priorities_ = std::move(episodes->priorities);
    priorities_.resize(static_cast<size_t>(training_size_));
    columns_ = *std::move(columns);
    snapshot_ = std::move(episodes->snapshot);
    return absl::OkStatus();
  }

  const std::vector<Field>& fields() const override { return columns_->fields(); }
  int64_t size() const override { return snapshot_->size(); }
  int64_t training_size() const override { return training_size_; }
  const std::map<std::string, ColumnStatistics>& statistics() const override { return none_; }
  const std::vector<float>& priorities() const override { return priorities_; }

  absl::Status Gather(absl::Span<const int64_t> examples,
                      absl::Span<std::byte* const> out) const override {
    for (size_t i = 0; i < examples.size(); ++i) {
      absl::Status status =
          columns_->Gather(*snapshot_, snapshot_->first() + static_cast<uint64_t>(examples[i]),
                           static_cast<int64_t>(i), out);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::string Describe() const override {
    return absl::StrCat(training_size_, " transitions of ", training_episodes_,
                        " episodes to train on, ", size() - training_size_, " of ",
                        episodes_ - training_episodes_, " held out; ", snapshot_->Describe(), "; ",
                        absl::StrJoin(fields(), ", ",
                                      [](std::string* out, const Field& field) {
                                        absl::StrAppend(out, field.name, " ",
                                                        ShapeText(field.shape));
                                      }),
                        "; read from the files while training");
  }

 private:
  const std::string file_;
  std::optional<ReplaySnapshot> snapshot_;
  std::optional<ReplayColumns> columns_;
  int64_t episodes_ = 0, training_episodes_ = 0, training_size_ = 0;
  std::vector<float> priorities_;
  const std::map<std::string, ColumnStatistics> none_;  // Models of columns do not normalise.
};

}  // namespace

ElementType ElementTypeOf(ColumnFormat type) {
  switch (type) {
    case ColumnFormat::kBool:
      return ElementType::kBool;
    case ColumnFormat::kInt32:
      return ElementType::kInt32;
    case ColumnFormat::kInt64:
      return ElementType::kInt64;
    case ColumnFormat::kFloat16:
      return ElementType::kFloat16;
    case ColumnFormat::kBfloat16:
      return ElementType::kBfloat16;
    case ColumnFormat::kFloat32:
      return ElementType::kFloat32;
    case ColumnFormat::kFloat64:
      return ElementType::kFloat64;
    case ColumnFormat::kUint8:
    case ColumnFormat::kBytes:
      break;
  }
  return ElementType::kUint8;
}

absl::StatusOr<ReplayColumns> ReplayColumns::Create(const ReplayLayout& layout) {
  ReplayColumns columns(layout);
  for (const ReplayColumn& column : layout.columns()) {
    if (column.type == ColumnFormat::kBytes) continue;
    std::vector<int64_t> shape = column.shape;
    if (column.is_variable()) shape.insert(shape.begin(), column.max_length);
    columns.fields_.push_back(
        {.name = column.name, .type = ElementTypeOf(column.type), .shape = std::move(shape)});
    if (!column.is_variable()) continue;
    columns.fields_.push_back(
        {.name = column.name + "_length", .type = ElementType::kInt64, .shape = {}});
    if (!layout.Find(columns.fields_.back().name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "column ", columns.fields_.back().name, " has the name of the lengths of column ",
        column.name, "; accepted in a buffer to train on: another name"));
  }
  columns.fields_.push_back({.name = "rewards", .shape = {}});
  columns.fields_.push_back({.name = "terminals", .type = ElementType::kBool, .shape = {}});
  columns.fields_.push_back({.name = "timeouts", .type = ElementType::kBool, .shape = {}});
  return columns;
}

absl::Status ReplayColumns::Gather(const ReplaySnapshot& snapshot, uint64_t number, int64_t place,
                                   absl::Span<std::byte* const> out) const {
  std::string row(layout_.row_bytes(), '\0');
  if (absl::Status status = snapshot.Read(number, 1, row.data()); !status.ok()) return status;
  size_t field = 0;
  const auto next = [&] {
    const int64_t offset = place * fields_[field].bytes();
    return reinterpret_cast<char*>(out[field++] + offset);
  };
  for (size_t i = 0; i < layout_.columns().size(); ++i) {
    const ReplayColumn& column = layout_.columns()[i];
    const char* const from = row.data() + layout_.offset(i);
    if (column.type == ColumnFormat::kBytes) continue;
    char* const to = next();
    if (!column.is_variable()) {
      std::memcpy(to, from, column.value_bytes());
      continue;
    }
    VariableValue value;
    std::memcpy(&value, from, sizeof(value));
    if (absl::Status status = PutVariable(snapshot, number, i, value, to); !status.ok()) {
      return status;
    }
    const auto length = static_cast<int64_t>(value.bytes / column.value_bytes());
    std::memcpy(next(), &length, sizeof(length));
  }
  ReplayRowEnd end;
  std::memcpy(&end, row.data() + row.size() - sizeof(end), sizeof(end));
  std::memcpy(next(), &end.reward, sizeof(end.reward));
  *next() = (end.flags & kTerminalFlag) != 0 ? 1 : 0;
  *next() = (end.flags & kTimeoutFlag) != 0 ? 1 : 0;
  return absl::OkStatus();
}

// Copies a variable value and fills the rest of its field with zeros.
absl::Status ReplayColumns::PutVariable(const ReplaySnapshot& snapshot, uint64_t number,
                                        size_t column, const VariableValue& value, char* to) const {
  const ReplayColumn& declared = layout_.columns()[column];
  const uint64_t most = static_cast<uint64_t>(declared.max_length) * declared.value_bytes();
  if (value.bytes > most) {
    return absl::DataLossError(absl::StrCat("transition ", number, ": ", declared.name, " has ",
                                            value.bytes, " bytes; accepted: at most ", most));
  }
  std::memset(to + value.bytes, 0, most - value.bytes);
  return snapshot.ReadValue(number, value, to);
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenReplayColumns(const std::string& folder,
                                                           double holdout_fraction) {
  auto dataset = std::make_unique<ColumnDataset>(folder);
  absl::Status status = dataset->Prepare(folder, holdout_fraction);
  if (!status.ok()) return status;
  return dataset;
}

}  // namespace genesis
