#include "trainer/checkpoint/checkpoint_reader.h"

#include "trainer/checkpoint/shards.h"
#include "trainer/checkpoint/state_layout.h"
#include "trainer/checkpoint/torch_archive.h"
#include "trainer/checkpoint/verify.h"
#include "trainer/formats/data_file.h"

namespace genesis {

absl::StatusOr<TrainingState> ReadCheckpoint(const std::string& path) {
  const absl::StatusOr<std::string> verified = VerifyFile(path);
  if (!verified.ok()) return ExplainForeignFile(path, verified.status());
  const absl::StatusOr<Value> root = ReadTree(path);
  if (!root.ok()) return FitFileFault(root.status());
  absl::StatusOr<TrainingState> state = FromTree(path, *root);
  if (!state.ok()) return FitFileFault(state.status());
  return state;
}

}  // namespace genesis
