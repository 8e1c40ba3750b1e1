#include "cli/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/text.h"

namespace genesis::cli {

Table::Table(std::vector<std::string> headers) {
  for (std::string& header : headers) {
    right_.push_back(header.starts_with('>'));
    if (right_.back()) header.erase(0, 1);
  }
  rows_.push_back(std::move(headers));
}

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::ToString() const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], TextWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - TextWidth(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", right_[i] ? padding : "", row[i],
                      right_[i] ? "" : padding);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  size_t width = 0;
  for (const auto& [name, value] : pairs) width = std::max(width, TextWidth(name));
  std::string text;
  for (const auto& [name, value] : pairs) {
    absl::StrAppend(&text, name, ":", std::string(width - TextWidth(name) + 2, ' '), value, "\n");
  }
  return text;
}

}  // namespace genesis::cli
