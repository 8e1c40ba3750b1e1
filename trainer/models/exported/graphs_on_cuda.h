#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer/models/exported/exported_file.h"

namespace genesis {

// The graphs of an exported file, adapted to a CUDA device: those that torch traced on the CPU,
// with "cuda" for each device and OperatorsForCuda for the operators that CUDA lacks. A worker sees
// only the job's device. Contains no weights. Kept in memory, with a path in /proc.
//
// Owner: the model. Threads: one. Failure: INVALID_ARGUMENT or DATA_LOSS if the file can no longer
// be read, RESOURCE_EXHAUSTED without memory.
class GraphsOnCuda {
 public:
  static absl::StatusOr<GraphsOnCuda> Make(const ExportedFile& file);
  ~GraphsOnCuda();
  GraphsOnCuda(GraphsOnCuda&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  GraphsOnCuda(const GraphsOnCuda&) = delete;
  GraphsOnCuda& operator=(const GraphsOnCuda&) = delete;

  // Path of a .pt2 file that lives as long as this object.
  std::string path() const;

 private:
  explicit GraphsOnCuda(int handle) : handle_(handle) {}

  int handle_;
};

}  // namespace genesis
