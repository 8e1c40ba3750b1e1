#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// Rows of text in aligned columns, two spaces apart. A '>' at the start of a header is not printed
// and aligns its column to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  // Adds a row, which must have one cell per header.
  void AddRow(std::vector<std::string> cells);

  // Returns the headers, then the rows, without trailing spaces.
  std::string ToString() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns "name:  value" lines with aligned values.
std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace genesis::cli
