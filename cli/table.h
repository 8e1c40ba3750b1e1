#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// Rows of text in aligned columns, two spaces apart. Numbers stand to the right of their column
// when its header begins with '>', which is not printed.
class Table {
 public:
  explicit Table(std::vector<std::string> headers);

  // Requires one cell per header.
  void AddRow(std::vector<std::string> cells);

  // Headers first; no spaces at the ends of lines.
  std::string ToString() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// "name:  value" lines with the values aligned.
std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace genesis::cli
