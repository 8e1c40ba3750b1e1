#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace genesis {

inline constexpr size_t kMaxColumns = 64;
inline constexpr size_t kMaxColumnName = 63;
inline constexpr size_t kMaxColumnDimensions = 8;
inline constexpr int64_t kMaxRowBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxVectorSize = 1 << 20;

// Number formats of columns. kBytes is text or other bytes.
enum class ColumnFormat {
  kBool,
  kUint8,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kBytes
};

// One column of a replay buffer.
struct ReplayColumn {
  std::string name;
  ColumnFormat type = ColumnFormat::kFloat32;
  std::vector<int64_t> shape = {};  // Shape of a value; empty for one number.
  // 0: a transition has one value. Otherwise it has 0 to max_length values.
  int64_t max_length = 0;

  bool is_variable() const { return max_length > 0; }
  int64_t elements() const;  // Numbers in a value.
  uint64_t value_bytes() const;
  // Returns "observations uint8 [64, 64, 3]", "advantage float32 []" or "tokens int32 [<=512]".
  std::string Describe() const;
  bool operator==(const ReplayColumn&) const = default;
};

// Return the size of one number in bytes, and the name of a format, such as "float32".
uint64_t ColumnFormatSize(ColumnFormat type);
std::string ColumnFormatName(ColumnFormat type);

// The location of a variable value, as stored in a row.
struct VariableValue {
  uint32_t offset = 0;  // Bytes from the end of the record's rows.
  uint32_t bytes = 0;
};

// The numbers at the end of a row.
struct ReplayRowEnd {
  float reward = 0;
  float priority = 0;
  uint32_t flags = 0;
};
inline constexpr uint32_t kTerminalFlag = 1;
inline constexpr uint32_t kTimeoutFlag = 2;

// The columns of a replay buffer, which all its transitions share, and their places in a row
// (segment.h). They are in the order of rows: observations, actions, next_observations, then the
// others by name. A layout is immutable.
class ReplayLayout {
 public:
  // INVALID_ARGUMENT, with the column and what is accepted.
  static absl::StatusOr<ReplayLayout> Create(std::vector<ReplayColumn> columns);
  // Returns the layout of version 1: observations, actions and next_observations of float32 in one
  // dimension. Requires sizes of 1 to kMaxVectorSize.
  static ReplayLayout OfVectors(int64_t observation_size, int64_t action_size);
  // Parses the result of Describe; nullopt for any other text.
  static std::optional<ReplayLayout> Parse(absl::string_view text);

  const std::vector<ReplayColumn>& columns() const { return columns_; }
  // Returns the index of a column in columns(), or nullopt if the layout does not have it.
  std::optional<size_t> Find(absl::string_view name) const;
  // Returns the offset of a column's value, or of its VariableValue, in a row.
  uint64_t offset(size_t column) const { return offsets_[column]; }
  uint64_t row_bytes() const { return row_bytes_; }
  bool has_variable() const { return has_variable_; }
  bool is_vectors() const { return is_vectors_; }
  // Returns one line per column.
  std::string Describe() const;
  bool operator==(const ReplayLayout& other) const { return columns_ == other.columns_; }

 private:
  std::vector<ReplayColumn> columns_;
  std::vector<uint64_t> offsets_;
  uint64_t row_bytes_ = sizeof(ReplayRowEnd);
  bool has_variable_ = false;
  bool is_vectors_ = false;
};

// Returns the first difference between two layouts: "column actions is float32 [1] in this buffer
// and float32 [2] in the request".
std::string LayoutDifference(const ReplayLayout& buffer, const ReplayLayout& request);

}  // namespace genesis
