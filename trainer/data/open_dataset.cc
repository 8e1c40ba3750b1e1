#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/job/model_kinds.h"
#include "replay/segment_scan.h"
#include "trainer/data/array_dataset.h"
#include "trainer/data/array_transitions.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jsonl_transitions.h"
#include "trainer/data/replay_columns.h"
#include "trainer/data/replay_transitions.h"
#include "trainer/data/synthetic.h"
#include "trainer/data/token_dataset.h"
#include "trainer/data/transition_dataset.h"
#include "trainer/formats/data_file.h"

namespace genesis {
namespace {

using training::v1::DatasetSpec;
using training::v1::JobSpec;

using OpenedDataset = absl::StatusOr<std::unique_ptr<Dataset>>;

constexpr int64_t kDefaultMemoryLimit = int64_t{1} << 30;
// An order of up to 64 MiB (2^23 examples) is always allowed: little compared with the process.
constexpr int64_t kFreeOrder = int64_t{1} << 26;

OpenedDataset OpenTransitions(absl::StatusOr<std::unique_ptr<TransitionRows>> rows,
                              const JobSpec& spec, double holdout_fraction,
                              int64_t memory_limit_bytes) {
  if (!rows.ok()) return rows.status();
  TransitionOptions options;
  options.holdout_fraction = holdout_fraction;
  options.rollout_steps = std::max(1, spec.model().world_model().rollout_steps());
  options.memory_limit_bytes = memory_limit_bytes;
  return TransitionDataset::Open(*std::move(rows), options);
}

absl::StatusOr<std::unique_ptr<TransitionRows>> OpenTrajectoryFile(const std::string& path,
                                                                   int64_t memory_limit_bytes) {
  if (absl::EndsWith(path, ".jsonl")) return OpenJsonlTransitions(path);
  return OpenArrayTransitions(path, memory_limit_bytes);
}

OpenedDataset OpenSynthetic(const JobSpec& spec, int64_t memory_limit_bytes) {
  const training::v1::SyntheticSpec& data = spec.dataset().synthetic();
  const double holdout = data.holdout_fraction();
  if (data.has_trajectories()) {
    return OpenTransitions(MakeTransitions(data.trajectories(), data.seed()), spec, holdout,
                           memory_limit_bytes);
  }
  if (data.has_tokens()) {
    return MakeTokens(data.tokens(), spec.model().transformer(), data.seed(), holdout,
                      memory_limit_bytes);
  }
  return MakeMaps(data.maps(), data.seed(), holdout, memory_limit_bytes);
}

}  // namespace

int64_t Field::elements() const {
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  return elements;
}

namespace {

OpenedDataset OpenReplay(const JobSpec& spec, int64_t limit) {
  const training::v1::ReplaySpec& replay = spec.dataset().replay();
  const absl::StatusOr<ReplayLayout> layout = ReadReplayLayout(replay.path());
  if (!layout.ok()) return layout.status();
  if (TakesColumns(*layout, spec.model().has_exported())) {
    return OpenReplayColumns(replay.path(), replay.holdout_fraction());
  }
  return OpenTransitions(OpenReplayTransitions(replay.path()), spec, replay.holdout_fraction(),
                         limit);
}

OpenedDataset OpenKind(const JobSpec& spec, int64_t limit) {
  const DatasetSpec& data = spec.dataset();
  switch (data.kind_case()) {
    case DatasetSpec::kTrajectories:
      return OpenTransitions(OpenTrajectoryFile(data.trajectories().path(), limit), spec,
                             data.trajectories().holdout_fraction(), limit);
    case DatasetSpec::kTokens:
      return OpenTokens(data.tokens(), spec.model().transformer(), limit);
    case DatasetSpec::kArrays:
      return OpenArrays(data.arrays(), FindKind(spec.model())->array, limit);
    case DatasetSpec::kSynthetic:
      return OpenSynthetic(spec, limit);
    case DatasetSpec::kReplay:
      return OpenReplay(spec, limit);
    case DatasetSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("dataset: required; give it one kind of dataset");
}

// Checks the memory for the order of an epoch, 8 bytes per example, in addition to the dataset's.
absl::Status CheckOrder(const Dataset& dataset, int64_t limit) {
  const int64_t bytes = dataset.training_size() * static_cast<int64_t>(sizeof(int64_t));
  if (bytes <= std::max(limit, kFreeOrder)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the shuffled order of ", dataset.training_size(), " examples takes ", bytes,
      " bytes of memory; accepted: ", limit,
      ", dataset.memory_limit_bytes; raise it, make the examples longer, or split the data"));
}

}  // namespace

OpenedDataset OpenDataset(const JobSpec& spec) {
  const DatasetSpec& data = spec.dataset();
  const int64_t limit =
      data.memory_limit_bytes() > 0 ? data.memory_limit_bytes() : kDefaultMemoryLimit;
  OpenedDataset dataset = OpenKind(spec, limit);
  if (!dataset.ok()) return FitFileFault(dataset.status());
  if (absl::Status status = CheckOrder(**dataset, limit); !status.ok()) return status;
  return dataset;
}

}  // namespace genesis
