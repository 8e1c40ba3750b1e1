#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <functional>
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
#include "trainer/data/followed_sampler.h"
#include "trainer/data/prioritized_sampler.h"
#include "trainer/models/base/model.h"

namespace genesis {

// This process's share of each drawn batch: number `index` of `count` consecutive parts. A drawn
// batch is then `count` times the job's batch_size, so `count` processes together see what one
// process would see with a batch of that size.
struct BatchShare {
  int64_t index = 0;
  int64_t count = 1;
};

// A source of training examples in batches. A background thread draws and gathers the next few
// batches into host memory while the step runs, and copies them from pinned memory to a GPU on a
// separate stream. The sampler alone determines the order, so it does not depend on timing. With
// prioritized sampling each draw depends on the previous step, so Next gathers the batch itself and
// adds the field weight [B, 1].
//
// Owner: the run; the dataset outlives it. Threads: one caller, and the gathering thread. Failure:
// RunFailure from Next and Fetch if the data can no longer be read.
class BatchSource {
 public:
  // Requires 1 <= batch_size * share.count and, unless the dataset is followed, at most its
  // training_size(). Prioritized sampling requires a dataset with priorities, or a followed one.
  BatchSource(const Dataset& dataset, const training::v1::JobSpec& spec, at::Device device,
              BatchShare share = {});
  ~BatchSource();
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  Batch Next();
  // Returns any examples, including held-out ones. Does not advance the order.
  Batch Fetch(std::vector<int64_t> examples) const;

  int64_t batch_size() const { return batch_size_; }
  // Number of examples in a drawn batch, of which each process gets a share.
  int64_t batch_examples() const { return batch_size_ * share_.count; }
  // Number of batches per epoch; for a followed replay buffer, which has no epochs, the maximum.
  int64_t batches_per_epoch() const { return batches_per_epoch_; }
  // The position of the batch that Next returns next.
  const SamplerPosition& position() const { return position_; }
  void Seek(const SamplerPosition& position);
  // Calls `change`, which changes the examples of a followed replay buffer, while no batch is being
  // gathered. Batches after position() are drawn from the new examples.
  void ChangeExamples(const std::function<void()>& change);

  bool prioritized() const { return prioritized_.has_value(); }
  // Updates priorities between two batches: examples with greater losses are drawn more often.
  // `losses` are [batch_examples()], of all shares of the last batch from Next, in their order.
  // Requires prioritized().
  void Reprioritize(const torch::Tensor& losses);
  // Returns the priorities, float32 [examples]; undefined unless sampling is prioritized.
  torch::Tensor priorities() const;
  // Restores saved priorities. A followed replay buffer then had the transitions below `next`.
  void RestorePriorities(const torch::Tensor& priorities, int64_t next);

 private:
  // A batch and the sampler's position after it.
  struct Prepared {
    Batch batch;
    std::optional<c10::Event> sent;  // If set, in flight to a GPU until this event.
    SamplerPosition after;
    absl::Status status;
  };

  void Start();
  void Stop();
  void Gather();
  // Returns all shares of the next batch. Moves past it.
  std::vector<int64_t> Draw();
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !ready_.empty(); }
  Prepared DrawPrioritized();
  Prepared TakeReady();
  Prepared Prepare(std::vector<int64_t> examples) const;
  Batch ToDevice(Batch batch) const;
  // Copies to a GPU on the copy stream. Called by the gathering thread.
  void Send(Prepared& prepared) const;
  // Makes the steps' stream wait for the copy.
  void Receive(Prepared& prepared) const;

  const Dataset& dataset_;
  const int64_t batch_size_;
  const BatchShare share_;
  const at::Device device_;
  const int64_t batches_per_epoch_;
  const std::optional<c10::Stream> copies_;  // The stream of copies to a GPU.
  SamplerPosition position_;

  std::optional<PrioritizedSampler> prioritized_;
  std::vector<int64_t> drawn_;  // Last examples drawn by priority, for all shares.
  // One of these is set unless sampling is prioritized. Ahead of position_, and used by the
  // gathering thread while it runs.
  std::optional<BatchSampler> sampler_;
  std::optional<FollowedSampler> followed_;
  absl::Mutex mutex_;
  std::deque<Prepared> ready_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace genesis
