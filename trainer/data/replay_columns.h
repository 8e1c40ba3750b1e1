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

// The fields of a transition in a buffer with any columns: each column with its own name, type and
// shape, except bytes; rewards, terminals and timeouts. A variable column is filled with zeros to
// its max_length, and <name>_length has the number of values.
//
// Owner: a dataset. Threads: any. Failure: statuses of ReplaySnapshot.
class ReplayColumns {
 public:
  // INVALID_ARGUMENT if two fields would have the same name.
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

// Returns whether examples are the columns of a buffer. Otherwise they are float32 transitions,
// which our own models take, and which a buffer of float32 vectors always gave.
inline bool TakesColumns(const ReplayLayout& layout, bool is_exported) {
  return is_exported && !layout.is_vectors();
}

// Returns the format of a column. Requires another type than kBytes.
ElementType ElementTypeOf(ColumnFormat type);

// Opens a snapshot of a replay buffer with any columns. The last episodes are held out. Examples
// are read from the files.
absl::StatusOr<std::unique_ptr<Dataset>> OpenReplayColumns(const std::string& folder,
                                                           double holdout_fraction);

}  // namespace genesis
