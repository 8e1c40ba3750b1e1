#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "c10/core/Event.h"
#include "trainer/data/batch_sampler.h"
#include "trainer/data/dataset.h"
#include "trainer/data/prioritized_sampler.h"
#include "trainer/models/model.h"

namespace genesis {

// Which part of each batch that is drawn is this process's: number `index` of `count` of them, one
// behind the other. A batch of the order is then `count` times the job's batch_size, so that
// several processes see together what one sees with that batch size.
struct BatchShare {
  int64_t index = 0;
  int64_t count = 1;
};

// Serves the training examples batch by batch. A thread of its own draws and gathers the next few
// batches into host memory while the step runs, and sends them to a GPU from pinned memory on a
// stream of copies. The order is the sampler's alone, so the threads' timing never shows. With
// prioritized sampling each draw depends on the step before, so Next gathers by itself, and adds
// the field weight [B, 1].
//
// Owner: the run; the dataset outlives it. Threads: one caller, and the one that gathers. Failure:
// RunFailure from Next and Fetch when the data cannot be read any more.
class BatchSource {
 public:
  // Requires 1 <= batch_size * share.count <= dataset.training_size(), and for prioritized sampling
  // that the dataset has priorities.
  BatchSource(const Dataset& dataset, const training::v1::JobSpec& spec, at::Device device,
              BatchShare share = {});
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  Batch Next();
  // Any examples, held-out ones included; takes nothing from the order.
  Batch Fetch(std::vector<int64_t> examples) const;

  int64_t batch_size() const { return batch_size_; }
  // Examples of a batch of the order, which several processes share.
  int64_t batch_examples() const { return batch_size_ * share_.count; }
  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  // The place of the batch that Next gives next.
  const SamplerPosition& position() const { return position_; }
  void Seek(const SamplerPosition& position);

  bool prioritized() const { return prioritized_.has_value(); }
  // Between a batch and the next: examples with greater losses are drawn more often. `losses` are
  // [batch_examples()], of all shares of the batch that Next gave, in their order. Requires
  // prioritized().
  void Reprioritize(const torch::Tensor& losses);
  // float32 [examples], or undefined where sampling is uniform.
  torch::Tensor priorities() const;
  void RestorePriorities(const torch::Tensor& priorities);

 private:
  // A batch, and where the order stands after it.
  struct Prepared {
    Batch batch;
    std::optional<c10::Event> sent;  // On its way to a GPU, until this has happened.
    SamplerPosition after;
    absl::Status status;
  };

  void Start();
  void Stop();
  void Gather();
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !ready_.empty(); }
  Prepared DrawPrioritized();
  Prepared TakeReady();
  Prepared Prepare(std::vector<int64_t> examples) const;
  Batch ToDevice(Batch batch) const;
  // To a GPU, on the stream of copies; the gathering thread's.
  void Send(Prepared& prepared) const;
  // Lets the stream of the steps wait for it.
  void Receive(Prepared& prepared) const;

  const Dataset& dataset_;
  const int64_t batch_size_;
  const BatchShare share_;
  const at::Device device_;
  const int64_t batches_per_epoch_;
  const std::optional<c10::Stream> copies_;  // Beside that of the steps, on a GPU.
  SamplerPosition position_;

  std::optional<PrioritizedSampler> prioritized_;
  std::vector<int64_t> drawn_;  // By it, for all shares.
  BatchSampler sampler_;        // Ahead of position_; the gathering thread's while it runs.
  absl::Mutex mutex_;
  std::deque<Prepared> ready_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace genesis
