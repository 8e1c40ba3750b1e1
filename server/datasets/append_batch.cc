#include "server/datasets/append_batch.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "config/job/job_spec.h"
#include "replay/segment.h"

namespace genesis {
namespace {

using training::v1::AppendTrajectoriesRequest;
using training::v1::ColumnData;
using training::v1::ColumnSpec;
using Floats = google::protobuf::RepeatedField<float>;

constexpr int64_t kMaxCapacity = int64_t{1} << 40;

// The types have the same order in both enums.
static_assert(static_cast<int>(ColumnFormat::kBool) + 1 == training::v1::COLUMN_TYPE_BOOL);
static_assert(static_cast<int>(ColumnFormat::kFloat32) + 1 == training::v1::COLUMN_TYPE_FLOAT32);
static_assert(static_cast<int>(ColumnFormat::kBytes) + 1 == training::v1::COLUMN_TYPE_BYTES);

absl::Status ToStatus(const std::vector<std::string>& faults) {
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

absl::StatusOr<ReplayLayout> ReadColumns(const AppendTrajectoriesRequest& request) {
  std::vector<ReplayColumn> columns;
  for (const ColumnSpec& spec : request.columns()) {
    if (spec.type() == training::v1::COLUMN_TYPE_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", QuoteValue(spec.name()),
                       ": type is required; accepted: BOOL, UINT8, INT32, INT64, FLOAT16, "
                       "BFLOAT16, FLOAT32, FLOAT64 and BYTES"));
    }
    columns.push_back({.name = spec.name(),
                       .type = static_cast<ColumnFormat>(spec.type() - 1),
                       .shape = {spec.shape().begin(), spec.shape().end()},
                       .max_length = spec.max_length()});
  }
  return ReplayLayout::Create(std::move(columns));
}

// Returns the numbers that a message has outside of `data` for a column of that name.
const Floats& FloatsOf(const AppendTrajectoriesRequest& request, absl::string_view name) {
  static const Floats none;
  if (name == "observations") return request.observations();
  if (name == "actions") return request.actions();
  if (name == "next_observations") return request.next_observations();
  return none;
}

absl::string_view BytesOf(const Floats& floats) {
  return {reinterpret_cast<const char*>(floats.data()),
          static_cast<size_t>(floats.size()) * sizeof(float)};
}

template <typename T>
absl::Span<const T> SpanOf(const google::protobuf::RepeatedField<T>& values) {
  return absl::MakeConstSpan(values.data(), static_cast<size_t>(values.size()));
}

// A reader of one message, which collects its errors.
class BatchReader {
 public:
  BatchReader(const AppendTrajectoriesRequest& request, const AppendTarget& target)
      : request_(request), target_(target) {}

  absl::StatusOr<ReplayRows> Read() {
    if (request_.batch_id().empty() || request_.batch_id().size() > kMaxBatchId) {
      return absl::InvalidArgumentError(absl::StrCat("batch_id has ", request_.batch_id().size(),
                                                     " bytes; accepted: 1 to ", kMaxBatchId));
    }
    CheckTarget();
    if (request_.rewards().empty()) {
      Add("rewards has no number; accepted: one for each of at least 1 transition");
      return ToStatus(faults_);
    }
    ReplayRows rows{.columns = {},
                    .rewards = SpanOf(request_.rewards()),
                    .terminals = SpanOf(request_.terminals()),
                    .timeouts = SpanOf(request_.timeouts()),
                    .priorities = SpanOf(request_.priorities())};
    CheckNames();
    for (const ReplayColumn& column : target_.layout.columns()) {
      rows.columns.push_back(ReadColumn(column));
    }
    Optional("terminals", request_.terminals_size());
    Optional("timeouts", request_.timeouts_size());
    Optional("priorities", request_.priorities_size());
    if (!faults_.empty()) return ToStatus(faults_);
    return rows;
  }

 private:
  void Add(const std::string& fault) {
    faults_.push_back(absl::StrCat("batch ", QuoteValue(request_.batch_id()), ": ", fault));
  }

  void CheckTarget() {
    if (!request_.dataset().empty() && request_.dataset() != target_.dataset) {
      Add(absl::StrCat("dataset is ", QuoteValue(request_.dataset()), "; accepted in this stream: ",
                       QuoteValue(target_.dataset), " or none; open a stream per dataset"));
    }
    const ReplayLayout& layout = target_.layout;
    const bool vectors = layout.is_vectors();
    Same("observation_size", request_.observation_size(),
         vectors ? layout.columns()[0].shape[0] : 0);
    Same("action_size", request_.action_size(), vectors ? layout.columns()[1].shape[0] : 0);
    Same("capacity", request_.capacity(), target_.capacity);
    if (request_.columns().empty()) return;
    const absl::StatusOr<ReplayLayout> columns = ReadColumns(request_);
    if (!columns.ok()) {
      Add(std::string(columns.status().message()));
    } else if (*columns != layout) {
      Add(LayoutDifference(layout, *columns));
    }
  }

  void Same(const char* field, int64_t value, int64_t want) {
    if (value == 0 || value == want) return;
    Add(absl::StrCat(field, " is ", value, "; accepted in this stream: ",
                     want == 0 ? "none, as in the first message"
                               : absl::StrCat(want, ", as in the first message, or none")));
  }

  // Reports values of columns that the buffer does not have.
  void CheckNames() {
    const auto check = [&](const std::string& name) {
      if (target_.layout.Find(name)) return;
      Add(absl::StrCat("column ", QuoteValue(name), " is not in this buffer; accepted: ",
                       absl::StrJoin(target_.layout.columns(), ", ",
                                     [](std::string* out, const ReplayColumn& column) {
                                       absl::StrAppend(out, column.name);
                                     })));
    };
    for (const ColumnData& data : request_.data()) check(data.name());
    for (const char* name : {"observations", "actions", "next_observations"}) {
      if (!FloatsOf(request_, name).empty()) check(name);
    }
  }

  ReplayRows::Column ReadColumn(const ReplayColumn& column) {
    const Floats& floats = FloatsOf(request_, column.name);
    const ColumnData* data = nullptr;
    int given = floats.empty() ? 0 : 1;
    for (const ColumnData& each : request_.data()) {
      if (each.name() != column.name) continue;
      data = &each;
      ++given;
    }
    if (given > 1) {
      Add(absl::StrCat("column ", column.name, " is given ", given, " times; accepted: once"));
    } else if (data != nullptr) {
      return {.values = data->values(), .lengths = SpanOf(data->lengths())};
    } else if (target_.layout.is_vectors()) {
      Count(column.name, floats.size(), column.elements());
    } else if (given == 0) {
      Add(absl::StrCat("column ", column.name, " is missing; accepted: ", column.Describe()));
    } else if (column.type != ColumnFormat::kFloat32 || column.is_variable()) {
      Add(absl::StrCat(column.name, " has float32 numbers; accepted: ", column.Describe(),
                       ", in data"));
    } else {
      Count(column.name, floats.size(), column.elements());
    }
    return {.values = BytesOf(floats)};
  }

  void Count(const std::string& field, int64_t size, int64_t width) {
    const int64_t rewards = request_.rewards_size();
    if (size == rewards * width) return;
    Add(absl::StrCat(field, " has ", size, " numbers; accepted: ", rewards * width, " (", rewards,
                     " rewards x ", width, ")"));
  }

  void Optional(const char* field, int64_t size) {
    if (size == 0 || size == request_.rewards_size()) return;
    Add(absl::StrCat(field, " has ", size, " values; accepted: ", request_.rewards_size(),
                     ", one per reward, or none"));
  }

  const AppendTrajectoriesRequest& request_;
  const AppendTarget& target_;
  std::vector<std::string> faults_;
};

}  // namespace

absl::StatusOr<AppendTarget> ReadTarget(const AppendTrajectoriesRequest& first) {
  std::vector<std::string> faults;
  std::string name_fault = NameFault("dataset", first.dataset());
  if (!name_fault.empty()) faults.push_back(std::move(name_fault));
  const auto check = [&](const char* field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    faults.push_back(absl::StrCat(field, " is ", value, "; accepted: ",
                                  least == 0 ? "0 (as before) or " : "", "1 to ", most));
  };
  AppendTarget target{.dataset = first.dataset(), .layout = {}, .capacity = first.capacity()};
  const bool sizes = first.observation_size() != 0 || first.action_size() != 0;
  if (!first.columns().empty()) {
    absl::StatusOr<ReplayLayout> layout = ReadColumns(first);
    if (layout.ok()) {
      target.layout = *std::move(layout);
    } else {
      faults.emplace_back(layout.status().message());
    }
    if (sizes && !target.layout.is_vectors()) {
      faults.emplace_back(
          "observation_size and action_size conflict with columns; give one of them");
    }
  } else if (sizes) {
    check("observation_size", first.observation_size(), 1, kMaxVectorSize);
    check("action_size", first.action_size(), 1, kMaxVectorSize);
  }
  check("capacity", first.capacity(), 0, kMaxCapacity);
  if (!faults.empty()) return ToStatus(faults);
  if (sizes && first.columns().empty()) {
    target.layout = ReplayLayout::OfVectors(first.observation_size(), first.action_size());
  }
  return target;
}

absl::StatusOr<ReplayRows> ReadRows(const AppendTrajectoriesRequest& request,
                                    const AppendTarget& target) {
  return BatchReader(request, target).Read();
}

absl::Status InBatch(const std::string& batch_id, const absl::Status& status) {
  return {status.code(), absl::StrCat("batch ", QuoteValue(batch_id), ": ", status.message())};
}

}  // namespace genesis
