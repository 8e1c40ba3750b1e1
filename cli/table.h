#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace genesis::cli {

// Rows of text in aligned columns, two spaces apart. A '>' at the start of a header is not printed
// and aligns its column to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  // Adds a row, which must have one cell per header.
  void AddRow(std::vector<std::string> cells);

  // Returns the headers, then the rows, without trailing spaces. If they are wider than `max_width`
  // characters, the widest columns of text are cut, with an ellipsis, but neither numbers nor the
  // first column, which names the row.
  std::string ToString(size_t max_width = kAnyWidth) const;
  static constexpr size_t kAnyWidth = std::numeric_limits<size_t>::max();

 private:
  // Reduces the widths of columns until a line fits.
  void Fit(size_t max_width, std::vector<size_t>& widths) const;

  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns "name:  value" lines with aligned values.
std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace genesis::cli
