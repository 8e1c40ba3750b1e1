#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "replay/layout.h"

namespace genesis {

// Transitions in columns: views of the caller's memory.
struct ReplayRows {
  struct Column {
    absl::string_view values;                 // Transition after transition, in C order.
    absl::Span<const uint32_t> lengths = {};  // Values per transition of a variable column.
  };
  std::vector<Column> columns;      // In the order of the layout.
  absl::Span<const float> rewards;  // One per transition.
  // One per transition, or empty for none.
  absl::Span<const bool> terminals, timeouts;
  absl::Span<const float> priorities;

  uint32_t count() const { return static_cast<uint32_t>(rewards.size()); }
};

// Returns INVALID_ARGUMENT if a column has another size than the layout's, a number is not finite,
// a bool is not 0 or 1, or a priority is not above 0. The message names the column, the transition,
// counted from `first`, the value and what is accepted. Requires one column per column of the
// layout, and flags and priorities of the right number.
absl::Status CheckRows(const ReplayLayout& layout, const ReplayRows& rows, int64_t first);

// Appends the rows and their variable values, in the format of segment.h. Requires that CheckRows
// accepts them.
void EncodeRows(const ReplayLayout& layout, const ReplayRows& rows, std::string& bytes);

}  // namespace genesis
