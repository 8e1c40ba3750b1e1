#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// Rows of text in aligned columns, two spaces apart. A column whose header begins with '>', which
// is not printed, is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  // Requires one cell per header.
  void AddRow(std::vector<std::string> cells);

  // Headers first; no trailing spaces.
  std::string ToString() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns "name:  value" lines with the values aligned.
std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace genesis::cli
