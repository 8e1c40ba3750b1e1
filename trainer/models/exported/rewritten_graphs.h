#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer/models/exported/exported_file.h"

namespace genesis {

// The graphs of an exported file, adapted to this process. Contains no weights. Kept in memory,
// with a path in /proc.
//
// Owner: the model. Threads: one. Failure: INVALID_ARGUMENT or DATA_LOSS if the file can no longer
// be read, RESOURCE_EXHAUSTED without memory.
class RewrittenGraphs {
 public:
  // Returns the JSON that replaces the JSON of a graph; nullopt to keep the graph unchanged.
  using Rewrite = std::function<std::optional<std::string>(const std::string&)>;

  // Applies `rewrite` to all graphs. Returns nullopt if none of them changes.
  static absl::StatusOr<std::optional<RewrittenGraphs>> Make(const ExportedFile& file,
                                                             const Rewrite& rewrite);
  ~RewrittenGraphs();
  RewrittenGraphs(RewrittenGraphs&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  RewrittenGraphs(const RewrittenGraphs&) = delete;
  RewrittenGraphs& operator=(const RewrittenGraphs&) = delete;

  // Returns the path of a .pt2 file that lives as long as this object.
  std::string path() const;

 private:
  explicit RewrittenGraphs(int handle) : handle_(handle) {}

  int handle_;
};

// Returns a graph that torch traced on the CPU, converted for CUDA: every device becomes "cuda",
// and OperatorsForCuda replace operators that CUDA lacks. A worker sees only the job's device.
std::string ForCuda(const std::string& graph);

}  // namespace genesis
