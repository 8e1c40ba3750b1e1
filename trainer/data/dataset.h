#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/formats/element_type.h"

namespace genesis {

// The mean and standard deviation of each column over the training part. Deviations are never 0, so
// dividing by them is safe.
struct ColumnStatistics {
  std::vector<float> mean;
  std::vector<float> deviation;
  std::vector<int64_t> constant;  // Columns that do not vary; their deviation is a placeholder.
};

// One named part of every example. `shape` is that of one example, without the batch dimension.
struct Field {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> shape;

  int64_t elements() const;
  int64_t bytes() const { return elements() * ElementSize(type); }
};

// The common interface to examples for training and evaluation, from any kind of file. Opening a
// dataset checks its examples. Examples [0, training_size) are for training, [training_size, size)
// are held out.
//
// Fields by kind of data:
//   transitions  observation [O], action [A], change [O] (next observation - observation),
//                reward [1], done [1]. With rollouts of H > 1 steps each shape begins with H:
//                observation [H, O] and so on, H consecutive steps of one episode. All float32.
//   tokens       tokens [context_length + 1], int64.
//   arrays       as named in the file; radio_unet's are image [C, H, W] and condition [K, H, W].
// A dataset with importance weights adds weight [1], float32.
//
// Owner: the run. Threads: every method may be called from several at once. Failure: statuses whose
// message begins with the file's name.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual const std::vector<Field>& fields() const = 0;
  virtual int64_t size() const = 0;
  virtual int64_t training_size() const = 0;

  // Copies examples: out[f] has room for examples.size() * fields()[f].bytes() bytes, which are
  // written in order. Requires 0 <= example < size(). Fails if the file changed or cannot be read.
  virtual absl::Status Gather(absl::Span<const int64_t> examples,
                              absl::Span<std::byte* const> out) const = 0;

  // Statistics by field name, over the training part; fields that are not normalised have none.
  // Transitions also have next_observation.
  virtual const std::map<std::string, ColumnStatistics>& statistics() const = 0;

  // Returns one priority > 0 per training example; empty if the data has none. In a followed replay
  // buffer, an example without a priority has 0.
  virtual const std::vector<float>& priorities() const = 0;

  // Returns the number of training examples that were dropped so far. Only a followed replay buffer
  // drops examples, always the oldest; it adds new examples at the end.
  virtual int64_t dropped() const { return 0; }
  // Returns the number of training examples that existed before transition `next` arrived.
  virtual int64_t SizeBefore(uint64_t /*next*/) const { return training_size(); }

  // Describes the data: "33600 transitions of 168 episodes to train on, 2400 of 12 held out".
  virtual std::string Describe() const = 0;
};

// Opens the data of `spec`. The model determines how examples are cut: rollout_steps of a world
// model, context_length of a transformer. INVALID_ARGUMENT for unusable data (with file, row,
// column and value of the first error), NOT_FOUND, PERMISSION_DENIED, or DATA_LOSS for a damaged
// file. Never holds more than memory_limit_bytes of examples in memory.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const training::v1::JobSpec& spec);

}  // namespace genesis
