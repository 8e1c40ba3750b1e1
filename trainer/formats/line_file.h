#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/formats/data_file.h"

namespace genesis {

// A text file with an index of its lines, 8 bytes per line in memory. A line ends with a line feed
// or at the end of the file. An empty last line does not count.
//
// Owner: a dataset. Threads: after Scan, Read may be called from several at once. Failure: as
// DataFile; INVALID_ARGUMENT for a line longer than kMaxLine.
class LineFile {
 public:
  static constexpr uint64_t kMaxLine = 64 << 20;

  explicit LineFile(std::shared_ptr<const DataFile> file) : file_(std::move(file)) {}

  // Calls `line` for every line in order, and builds the index.
  absl::Status Scan(absl::FunctionRef<absl::Status(int64_t number, absl::string_view line)> line);

  int64_t size() const { return static_cast<int64_t>(starts_.size()) - 1; }
  // Reads lines [first, first + count), each with its line feed.
  absl::Status Read(int64_t first, int64_t count, std::string& text) const;
  const DataFile& file() const { return *file_; }

 private:
  std::shared_ptr<const DataFile> file_;
  std::vector<uint64_t> starts_ = {0};  // Start of each line, then the end of the last.
};

}  // namespace genesis
