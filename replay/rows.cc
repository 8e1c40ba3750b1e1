#include "replay/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace genesis {
namespace {

// Returns the bits of a floating-point format that are all set in NaN and infinity; 0 for others.
uint64_t ExponentBits(ColumnFormat type) {
  switch (type) {
    case ColumnFormat::kFloat16:
      return 0x7C00;
    case ColumnFormat::kBfloat16:
      return 0x7F80;
    case ColumnFormat::kFloat32:
      return 0x7F800000;
    case ColumnFormat::kFloat64:
      return 0x7FF0000000000000;
    default:
      return 0;
  }
}

// Returns the index of the first number that is NaN or infinite, or -1. Does not branch for each
// number, so that the compiler can vectorize the loop.
template <typename Bits>
int64_t FirstNotFinite(absl::string_view values, uint64_t exponent) {
  constexpr size_t kStride = 4096;
  const auto mask = static_cast<Bits>(exponent);
  const size_t count = values.size() / sizeof(Bits);
  const auto at = [&](size_t i) {
    Bits bits;
    std::memcpy(&bits, values.data() + i * sizeof(Bits), sizeof(Bits));
    return bits;
  };
  for (size_t begin = 0; begin < count; begin += kStride) {
    const size_t end = std::min(count, begin + kStride);
    Bits found = 0;
    for (size_t i = begin; i < end; ++i) found |= static_cast<Bits>((at(i) & mask) == mask);
    if (found == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if ((at(i) & mask) == mask) return static_cast<int64_t>(i);
    }
  }
  return -1;
}

// Returns the index of the first number that is not finite, or is a bool other than 0 and 1; or -1.
int64_t FirstBad(ColumnFormat type, absl::string_view values) {
  const uint64_t exponent = ExponentBits(type);
  if (type == ColumnFormat::kBool) {
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](char value) { return value != 0 && value != 1; });
    return bad == values.end() ? -1 : bad - values.begin();
  }
  if (exponent == 0) return -1;
  switch (ColumnFormatSize(type)) {
    case 2:
      return FirstNotFinite<uint16_t>(values, exponent);
    case 4:
      return FirstNotFinite<uint32_t>(values, exponent);
    default:
      return FirstNotFinite<uint64_t>(values, exponent);
  }
}

// Returns "nan", "inf" or "-inf" for a number that is not finite. A bool is returned as its number.
std::string BadText(ColumnFormat type, const char* at) {
  if (type == ColumnFormat::kBool) return absl::StrCat(static_cast<unsigned char>(*at));
  uint64_t bits = 0;
  std::memcpy(&bits, at, ColumnFormatSize(type));
  const uint64_t exponent = ExponentBits(type);
  const uint64_t fraction = exponent & (0 - exponent);  // The bit above the fraction.
  if ((bits & (fraction - 1)) != 0) return "nan";
  return bits > exponent ? "-inf" : "inf";
}

// Returns the index of a number in its value: "[3, 0]". The first dimension may be variable.
std::string Place(const ReplayColumn& column, int64_t element) {
  std::vector<int64_t> place;
  for (auto size = column.shape.rbegin(); size != column.shape.rend(); ++size) {
    place.push_back(element % *size);
    element /= *size;
  }
  if (column.is_variable()) place.push_back(element);
  std::reverse(place.begin(), place.end());
  return place.empty() ? "" : absl::StrCat("[", absl::StrJoin(place, ", "), "]");
}

absl::Status Unusable(const std::string& text) { return absl::InvalidArgumentError(text); }

// A check of one column.
class ColumnCheck {
 public:
  ColumnCheck(const ReplayColumn& column, const ReplayRows::Column& given, const ReplayRows& rows,
              int64_t first)
      : column_(column), given_(given), count_(rows.count()), first_(first) {}

  absl::Status Check() const {
    absl::Status status = column_.is_variable() ? CheckLengths() : CheckFixed();
    if (!status.ok()) return status;
    const int64_t bad = FirstBad(column_.type, given_.values);
    if (bad < 0) return absl::OkStatus();
    const auto [row, element] = Find(bad);
    return Unusable(absl::StrCat(
        "transition ", first_ + row, ": ", column_.name, Place(column_, element), " is ",
        BadText(column_.type,
                given_.values.data() + static_cast<uint64_t>(bad) * ColumnFormatSize(column_.type)),
        column_.type == ColumnFormat::kBool ? "; accepted for bool: 0 and 1"
                                            : "; every value must be finite"));
  }

 private:
  absl::Status CheckFixed() const {
    if (!given_.lengths.empty()) {
      return Unusable(absl::StrCat(
          "column ", column_.name, " has ", given_.lengths.size(),
          " lengths; accepted: none, because its size is fixed: ", column_.Describe()));
    }
    const uint64_t wanted = count_ * column_.value_bytes();
    if (given_.values.size() == wanted) return absl::OkStatus();
    return Unusable(absl::StrCat("column ", column_.name, " has ", given_.values.size(),
                                 " bytes; accepted: ", wanted, " (", count_, " transitions x ",
                                 column_.value_bytes(), " bytes of ", column_.Describe(), ")"));
  }

  absl::Status CheckLengths() const {
    if (given_.lengths.size() != count_) {
      return Unusable(absl::StrCat("column ", column_.name, " has ", given_.lengths.size(),
                                   " lengths; accepted: ", count_, ", one for each transition"));
    }
    uint64_t values = 0;
    for (uint32_t row = 0; row < count_; ++row) {
      const uint32_t length = given_.lengths[row];
      values += length;
      if (length <= column_.max_length) continue;
      return Unusable(absl::StrCat("transition ", first_ + row, ": ", column_.name, " has length ",
                                   length, "; accepted: 0 to ", column_.max_length));
    }
    const uint64_t wanted = values * column_.value_bytes();
    if (given_.values.size() == wanted) return absl::OkStatus();
    return Unusable(absl::StrCat("column ", column_.name, " has ", given_.values.size(),
                                 " bytes; accepted: ", wanted, " (its lengths are ", values,
                                 " in all x ", column_.value_bytes(), " bytes of ",
                                 column_.Describe(), ")"));
  }

  // Returns the transition that contains a number, and the number's index in that transition.
  std::pair<int64_t, int64_t> Find(int64_t number) const {
    const int64_t elements = column_.elements();
    if (!column_.is_variable()) return {number / elements, number % elements};
    int64_t row = 0;
    for (const uint32_t length : given_.lengths) {
      if (number < length * elements) break;
      number -= length * elements;
      ++row;
    }
    return {row, number};
  }

  const ReplayColumn& column_;
  const ReplayRows::Column& given_;
  const uint32_t count_;
  const int64_t first_;
};

std::string NumberText(float value) { return std::isnan(value) ? "nan" : absl::StrCat(value); }

absl::Status CheckEnds(const ReplayRows& rows, int64_t first) {
  for (uint32_t row = 0; row < rows.count(); ++row) {
    if (!std::isfinite(rows.rewards[row])) {
      return Unusable(absl::StrCat("transition ", first + row, ": reward is ",
                                   NumberText(rows.rewards[row]), "; every value must be finite"));
    }
    const float priority = rows.priorities.empty() ? 1 : rows.priorities[row];
    if (!std::isfinite(priority) || priority <= 0) {
      return Unusable(absl::StrCat("transition ", first + row, ": priority is ",
                                   NumberText(priority),
                                   "; accepted: a finite number > 0, or none"));
    }
  }
  return absl::OkStatus();
}

bool IsSet(absl::Span<const bool> flags, uint32_t row) { return !flags.empty() && flags[row]; }

}  // namespace

absl::Status CheckRows(const ReplayLayout& layout, const ReplayRows& rows, int64_t first) {
  for (size_t i = 0; i < rows.columns.size(); ++i) {
    absl::Status status = ColumnCheck(layout.columns()[i], rows.columns[i], rows, first).Check();
    if (!status.ok()) return status;
  }
  return CheckEnds(rows, first);
}

void EncodeRows(const ReplayLayout& layout, const ReplayRows& rows, std::string& bytes) {
  const uint64_t stride = layout.row_bytes();
  const uint64_t begin = bytes.size();
  struct Source {
    const char* from;
    uint64_t value_bytes;
    const uint32_t* lengths;  // Null for a fixed size.
  };
  uint64_t variable = 0;
  std::vector<Source> sources;
  for (size_t i = 0; i < rows.columns.size(); ++i) {
    const ReplayColumn& column = layout.columns()[i];
    const absl::string_view given = rows.columns[i].values;
    if (column.is_variable()) variable += given.size();
    sources.push_back({given.data(), column.value_bytes(),
                       column.is_variable() ? rows.columns[i].lengths.data() : nullptr});
  }
  bytes.resize((begin + rows.count() * stride + variable + 3) / 4 * 4);
  char* const first = bytes.data() + begin;
  char* const values = first + rows.count() * stride;
  uint64_t at = 0;  // Offset of the next variable value.
  char* to = first;
  for (uint32_t row = 0; row < rows.count(); ++row) {
    for (Source& source : sources) {
      uint64_t size = source.value_bytes;
      if (source.lengths == nullptr) {
        std::memcpy(to, source.from, size);
        to += size;
      } else {
        size *= source.lengths[row];
        const VariableValue value{.offset = static_cast<uint32_t>(at),
                                  .bytes = static_cast<uint32_t>(size)};
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
        if (size > 0) std::memcpy(values + at, source.from, size);
        at += size;
      }
      source.from += size;
    }
    const ReplayRowEnd end{.reward = rows.rewards[row],
                           .priority = rows.priorities.empty() ? 0 : rows.priorities[row],
                           .flags = (IsSet(rows.terminals, row) ? kTerminalFlag : 0) |
                                    (IsSet(rows.timeouts, row) ? kTimeoutFlag : 0)};
    std::memcpy(to, &end, sizeof(end));
    to += sizeof(end);
  }
}

}  // namespace genesis
