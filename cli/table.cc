#include "cli/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

constexpr size_t kGap = 2;       // Spaces between columns.
constexpr size_t kMinWidth = 4;  // Characters that a cut column keeps.

}  // namespace

Table::Table(std::vector<std::string> headers) {
  for (std::string& header : headers) {
    right_.push_back(header.starts_with('>'));
    if (right_.back()) header.erase(0, 1);
  }
  rows_.push_back(std::move(headers));
}

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

void Table::Fit(size_t max_width, std::vector<size_t>& widths) const {
  size_t total = kGap * (widths.size() - 1) + std::accumulate(widths.begin(), widths.end(), 0UL);
  while (total > max_width) {
    size_t widest = 0;
    for (size_t i = 1; i < widths.size(); ++i) {
      if (!right_[i] && (widest == 0 || widths[i] > widths[widest])) widest = i;
    }
    if (widest == 0 || widths[widest] <= kMinWidth) return;
    --widths[widest];
    --total;
  }
}

std::string Table::ToString(size_t max_width) const {
  std::vector<size_t> widths(right_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], TextWidth(row[i]));
  }
  Fit(max_width, widths);
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool is_cut = TextWidth(row[i]) > widths[i];
      const std::string cell =
          is_cut ? absl::StrCat(CutToWidth(row[i], widths[i] - 1), "…") : row[i];
      const std::string padding(widths[i] - TextWidth(cell), ' ');
      absl::StrAppend(&line, i == 0 ? "" : std::string(kGap, ' '), right_[i] ? padding : "", cell,
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
