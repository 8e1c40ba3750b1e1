#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "replay/replay_snapshot.h"
#include "trainer/data/dataset.h"

namespace genesis {

// The fields of a transition in a buffer with any columns: rewards, terminals, timeouts, and each
// column with its own name, type and shape, unless it is bytes. A variable column is filled with
// zeros to its max_length, and <name>_length has the number of values.
//
// Owner: a dataset. Threads: any. Failure: statuses of ReplaySnapshot.
class ReplayColumns {
 public:
  // Returns INVALID_ARGUMENT if two fields would have the same name.
  static absl::StatusOr<ReplayColumns> Create(const ReplayLayout& layout);

  const std::vector<Field>& fields() const { return fields_; }
  // Copies transition `number` to place `place` of each field: out[f] + place *
  // fields()[f].bytes().
  absl::Status Gather(const ReplaySnapshot& snapshot, uint64_t number, int64_t place,
                      absl::Span<std::byte* const> out) const;

 private:
  explicit ReplayColumns(ReplayLayout layout) : layout_(std::move(layout)) {}
  absl::Status PutVariable(const ReplaySnapshot& snapshot, uint64_t number, size_t column,
                           const VariableValue& value, char* to) const;

  ReplayLayout layout_;
  std::vector<Field> fields_;
};

// Returns whether a model gets the columns of a buffer as they are. Otherwise it gets float32
// transitions: built-in models always do, exported modules from buffers of float32 vectors.
inline bool TakesColumns(const ReplayLayout& layout, bool is_exported) {
  return is_exported && !layout.is_vectors();
}

// Returns the element type of a column. Requires a type other than kBytes.
ElementType ElementTypeOf(ColumnFormat type);

// Opens a snapshot of a replay buffer with any columns. The last episodes are held out. Examples
// are read from the files.
absl::StatusOr<std::unique_ptr<Dataset>> OpenReplayColumns(const std::string& folder,
                                                           double holdout_fraction);

}  // namespace genesis
