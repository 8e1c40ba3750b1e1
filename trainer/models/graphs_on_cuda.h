#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer/models/exported_file.h"

namespace genesis {

// The graphs of an exported file as a CUDA device runs them: what torch traced on the CPU, with
// "cuda" for each device and OperatorsForCuda for the operators that CUDA lacks; on the job's
// device, for a worker sees one. Weights are not in it. Kept in memory: the path is one of /proc.
//
// Owner: the model. Threads: one. Failure: INVALID_ARGUMENT or DATA_LOSS where the file cannot be
// read again, RESOURCE_EXHAUSTED without memory.
class GraphsOnCuda {
 public:
  static absl::StatusOr<GraphsOnCuda> Make(const ExportedFile& file);
  ~GraphsOnCuda();
  GraphsOnCuda(GraphsOnCuda&& other) noexcept : handle_(std::exchange(other.handle_, -1)) {}
  GraphsOnCuda(const GraphsOnCuda&) = delete;
  GraphsOnCuda& operator=(const GraphsOnCuda&) = delete;

  // A .pt2 file, as long as this lives.
  std::string path() const;

 private:
  explicit GraphsOnCuda(int handle) : handle_(handle) {}

  int handle_;
};

}  // namespace genesis
