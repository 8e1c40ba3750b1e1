#include "replay/layout.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

constexpr char kObservations[] = "observations";
constexpr char kActions[] = "actions";
constexpr char kNextObservations[] = "next_observations";
constexpr char kAtMost[] = "<=";

struct TypeRow {
  ColumnFormat type;
  const char* name;
  uint64_t size;
};
constexpr std::array<TypeRow, 9> kTypes = {{{ColumnFormat::kBool, "bool", 1},
                                            {ColumnFormat::kUint8, "uint8", 1},
                                            {ColumnFormat::kInt32, "int32", 4},
                                            {ColumnFormat::kInt64, "int64", 8},
                                            {ColumnFormat::kFloat16, "float16", 2},
                                            {ColumnFormat::kBfloat16, "bfloat16", 2},
                                            {ColumnFormat::kFloat32, "float32", 4},
                                            {ColumnFormat::kFloat64, "float64", 8},
                                            {ColumnFormat::kBytes, "bytes", 1}}};

const TypeRow& RowOf(ColumnFormat type) { return kTypes[static_cast<size_t>(type)]; }

// Returns the format and the sizes of a column: "uint8 [64, 64, 3]".
std::string Form(const ReplayColumn& column) {
  std::vector<std::string> sizes;
  if (column.is_variable()) sizes.push_back(absl::StrCat(kAtMost, column.max_length));
  for (const int64_t size : column.shape) sizes.push_back(absl::StrCat(size));
  return absl::StrCat(ColumnFormatName(column.type), " [", absl::StrJoin(sizes, ", "), "]");
}

bool IsColumnName(absl::string_view name) {
  const auto accepted = [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_';
  };
  return !name.empty() && name.size() <= kMaxColumnName &&
         absl::ascii_islower(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), accepted);
}

// Returns "" if a column is valid, otherwise what is wrong with it and what is accepted.
std::string Fault(const ReplayColumn& column) {
  if (!IsColumnName(column.name)) {
    return absl::StrCat("column ", QuoteValue(column.name),
                        ": accepted as a name: a lower-case letter, then lower-case letters, "
                        "digits and '_', at most ",
                        kMaxColumnName);
  }
  const std::string place = absl::StrCat("column ", column.name, ": ");
  for (const char* name : {"rewards", "terminals", "timeouts", "priorities"}) {
    if (column.name == name) return place + "is in every buffer; do not declare it";
  }
  if (column.shape.size() > kMaxColumnDimensions) {
    return absl::StrCat(place, "shape has ", column.shape.size(), " sizes; accepted: at most ",
                        kMaxColumnDimensions);
  }
  if (column.type == ColumnFormat::kBytes && (!column.shape.empty() || !column.is_variable())) {
    return absl::StrCat(place, "is ", Form(column),
                        "; accepted for bytes: no shape, and a max_length");
  }
  // Check each bound before multiplying, so that no product overflows.
  int64_t bytes = static_cast<int64_t>(RowOf(column.type).size);
  std::vector<int64_t> sizes = column.shape;
  if (column.max_length != 0) sizes.push_back(column.max_length);
  for (const int64_t size : sizes) {
    if (size < 1 || size > kMaxRowBytes) {
      return absl::StrCat(place, "has the size ", size, "; accepted: 1 to ", kMaxRowBytes);
    }
    bytes *= size;
    if (bytes > kMaxRowBytes) {
      return absl::StrCat(place, Form(column), " takes more than ", kMaxRowBytes,
                          " bytes a transition; accepted: at most as many");
    }
  }
  return "";
}

// Returns the key by which the columns of a row are sorted.
auto Order(const ReplayColumn& column) {
  const int rank = column.name == kObservations       ? 0
                   : column.name == kActions          ? 1
                   : column.name == kNextObservations ? 2
                                                      : 3;
  return std::make_pair(rank, absl::string_view(column.name));
}

bool IsVector(const ReplayColumn& column, absl::string_view name) {
  return column.name == name && column.type == ColumnFormat::kFloat32 && column.shape.size() == 1 &&
         column.shape[0] <= kMaxVectorSize && !column.is_variable();
}

// Parses one line that Describe returned.
std::optional<ReplayColumn> ParseColumn(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
  if (words.size() != 3) return std::nullopt;
  ReplayColumn column{.name = std::string(words[0])};
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const TypeRow& row) { return row.name == words[1]; });
  absl::string_view sizes = words[2];
  if (type == kTypes.end() || !absl::ConsumePrefix(&sizes, "[") ||
      !absl::ConsumeSuffix(&sizes, "]")) {
    return std::nullopt;
  }
  column.type = type->type;
  for (absl::string_view size : absl::StrSplit(sizes, ", ", absl::SkipEmpty())) {
    int64_t number = 0;
    const bool at_most = absl::ConsumePrefix(&size, kAtMost);
    if (!absl::SimpleAtoi(size, &number)) return std::nullopt;
    if (at_most) {
      column.max_length = number;
    } else {
      column.shape.push_back(number);
    }
  }
  return column;
}

}  // namespace

uint64_t ColumnFormatSize(ColumnFormat type) { return RowOf(type).size; }
std::string ColumnFormatName(ColumnFormat type) { return RowOf(type).name; }

int64_t ReplayColumn::elements() const {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  return elements;
}

uint64_t ReplayColumn::value_bytes() const {
  return static_cast<uint64_t>(elements()) * ColumnFormatSize(type);
}

std::string ReplayColumn::Describe() const { return absl::StrCat(name, " ", Form(*this)); }

absl::StatusOr<ReplayLayout> ReplayLayout::Create(std::vector<ReplayColumn> columns) {
  if (columns.empty() || columns.size() > kMaxColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat("columns has ", columns.size(), " columns; accepted: 1 to ", kMaxColumns));
  }
  std::sort(columns.begin(), columns.end(),
            [](const auto& a, const auto& b) { return Order(a) < Order(b); });
  ReplayLayout layout;
  int64_t row_bytes = 0;
  for (const ReplayColumn& column : columns) {
    if (std::string fault = Fault(column); !fault.empty()) {
      return absl::InvalidArgumentError(fault);
    }
    if (!layout.columns_.empty() && layout.columns_.back().name == column.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("column ", column.name, ": is declared twice; accepted: once"));
    }
    layout.offsets_.push_back(static_cast<uint64_t>(row_bytes));
    row_bytes +=
        static_cast<int64_t>(column.is_variable() ? sizeof(VariableValue) : column.value_bytes());
    layout.has_variable_ |= column.is_variable();
    layout.columns_.push_back(column);
  }
  if (row_bytes > kMaxRowBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the columns of fixed sizes take ", row_bytes,
                                                   " bytes a transition; accepted: at most ",
                                                   kMaxRowBytes));
  }
  layout.row_bytes_ = static_cast<uint64_t>(row_bytes) + sizeof(ReplayRowEnd);
  layout.is_vectors_ = columns.size() == 3 && IsVector(columns[0], kObservations) &&
                       IsVector(columns[1], kActions) && IsVector(columns[2], kNextObservations) &&
                       columns[0].shape == columns[2].shape;
  return layout;
}

ReplayLayout ReplayLayout::OfVectors(int64_t observation_size, int64_t action_size) {
  return *Create({{.name = kObservations, .shape = {observation_size}},
                  {.name = kActions, .shape = {action_size}},
                  {.name = kNextObservations, .shape = {observation_size}}});
}

std::optional<ReplayLayout> ReplayLayout::Parse(absl::string_view text) {
  std::vector<ReplayColumn> columns;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::optional<ReplayColumn> column = ParseColumn(line);
    if (!column) return std::nullopt;
    columns.push_back(*std::move(column));
  }
  absl::StatusOr<ReplayLayout> layout = Create(std::move(columns));
  if (!layout.ok() || layout->Describe() != text) return std::nullopt;
  return *std::move(layout);
}

std::optional<size_t> ReplayLayout::Find(absl::string_view name) const {
  const auto found = std::find_if(columns_.begin(), columns_.end(),
                                  [name](const auto& column) { return column.name == name; });
  if (found == columns_.end()) return std::nullopt;
  return static_cast<size_t>(found - columns_.begin());
}

std::string ReplayLayout::Describe() const {
  std::string text;
  for (const ReplayColumn& column : columns_) absl::StrAppend(&text, column.Describe(), "\n");
  return text;
}

std::string LayoutDifference(const ReplayLayout& buffer, const ReplayLayout& request) {
  for (const ReplayColumn& column : buffer.columns()) {
    const std::optional<size_t> asked = request.Find(column.name);
    if (asked && request.columns()[*asked] == column) continue;
    return absl::StrCat("column ", column.name, " is ", Form(column), " in this buffer and ",
                        asked ? Form(request.columns()[*asked]) : "absent", " in the request");
  }
  for (const ReplayColumn& column : request.columns()) {
    if (buffer.Find(column.name)) continue;
    return absl::StrCat("column ", column.name, " is absent in this buffer and ", Form(column),
                        " in the request");
  }
  return "";
}

}  // namespace genesis
