#include "trainer/step/batch_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "trainer/formats/data_file.h"
#include "trainer/models/base/sample_batch.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

// Number of batches prepared ahead: enough to hide a slow read, and cheap in memory.
constexpr size_t kAhead = 3;

c10::Stream CurrentStream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

std::optional<c10::Stream> StreamOfCopies(at::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace

BatchSource::BatchSource(const Dataset& dataset, const training::v1::JobSpec& spec,
                         at::Device device, BatchShare share)
    : dataset_(dataset),
      batch_size_(spec.training().batch_size()),
      share_(share),
      device_(device),
      batches_per_epoch_(spec.dataset().replay().follow()
                             ? std::numeric_limits<int64_t>::max()
                             : dataset.training_size() / (batch_size_ * share.count)),
      copies_(StreamOfCopies(device)) {
  const training::v1::SamplingSpec& sampling = spec.dataset().sampling();
  const bool follows = spec.dataset().replay().follow();
  if (sampling.kind() == training::v1::SAMPLING_KIND_PRIORITIZED) {
    prioritized_.emplace(std::vector<float>(),
                         PrioritizedOptions{.batch_size = batch_size_ * share.count,
                                            .seed = spec.training().seed(),
                                            .priority_exponent = sampling.priority_exponent(),
                                            .importance_exponent = sampling.importance_exponent(),
                                            .endless = follows});
    prioritized_->Slide(0, dataset.priorities());
  } else if (follows) {
    followed_.emplace(batch_examples(), spec.training().seed(),
                      sampling.kind() == training::v1::SAMPLING_KIND_NEWEST);
  } else {
    sampler_.emplace(dataset.training_size(), batch_examples(), spec.training().seed());
  }
  Start();
}

BatchSource::~BatchSource() { Stop(); }

void BatchSource::Start() {
  // There may be no examples yet, or all of them may have been evicted.
  if (prioritized() || dataset_.training_size() == 0) return;
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = false;
  }
  thread_ = std::thread([this] { Gather(); });
}

void BatchSource::Stop() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
  const absl::MutexLock lock(&mutex_);
  ready_.clear();
}

bool BatchSource::HasRoom() const { return stopping_ || ready_.size() < kAhead; }

void BatchSource::Gather() {
  for (;;) {
    const std::vector<int64_t> drawn = Draw();
    const auto begin = drawn.begin() + share_.index * batch_size_;
    Prepared prepared = Prepare({begin, begin + batch_size_});
    prepared.after = followed_ ? followed_->position() : sampler_->position();
    const bool failed = !prepared.status.ok();
    if (!failed) Send(prepared);
    const absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &BatchSource::HasRoom));
    if (stopping_) return;
    ready_.push_back(std::move(prepared));
    if (failed) return;
  }
}

std::vector<int64_t> BatchSource::Draw() {
  if (followed_) {
    std::vector<int64_t> drawn = followed_->Draw(dataset_.training_size());
    followed_->Advance();
    return drawn;
  }
  const auto begin = sampler_->order().begin() + sampler_->offset();
  std::vector<int64_t> drawn(begin, begin + batch_examples());
  sampler_->Advance();
  return drawn;
}

BatchSource::Prepared BatchSource::Prepare(std::vector<int64_t> examples) const {
  Prepared prepared;
  absl::StatusOr<BatchMemory> memory =
      MakeBatchMemory(dataset_, static_cast<int64_t>(examples.size()), device_.is_cuda());
  prepared.status = memory.status();
  if (!memory.ok()) return prepared;
  prepared.status = FitFileFault(dataset_.Gather(examples, memory->targets));
  prepared.batch = std::move(memory->batch);
  prepared.batch.examples = std::move(examples);
  return prepared;
}

Batch BatchSource::ToDevice(Batch batch) const {
  if (!device_.is_cuda()) return batch;
  for (auto& [name, tensor] : batch.fields) tensor = tensor.to(device_, /*non_blocking=*/true);
  return batch;
}

void BatchSource::Send(Prepared& prepared) const {
  if (!copies_) return;
  const c10::StreamGuard guard(*copies_);
  prepared.batch = ToDevice(std::move(prepared.batch));
  prepared.sent.emplace(device_.type());
  prepared.sent->record(*copies_);
}

void BatchSource::Receive(Prepared& prepared) const {
  const c10::Stream steps = CurrentStream(device_);
  prepared.sent->block(steps);
  // The tensors were allocated on the copy stream; keep their memory from being reused before the
  // step has read it.
  for (auto& [name, tensor] : prepared.batch.fields) tensor.record_stream(steps);
}

BatchSource::Prepared BatchSource::DrawPrioritized() {
  PrioritizedBatch drawn = prioritized_->Draw();
  drawn_ = std::move(drawn.examples);
  const auto begin = drawn_.begin() + share_.index * batch_size_;
  Prepared prepared = Prepare({begin, begin + batch_size_});
  prepared.batch.fields["weight"] =
      torch::tensor(drawn.weights).narrow(0, share_.index * batch_size_, batch_size_).view({-1, 1});
  prioritized_->Advance();
  prepared.after = prioritized_->position();
  return prepared;
}

BatchSource::Prepared BatchSource::TakeReady() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &BatchSource::HasReady));
  Prepared prepared = std::move(ready_.front());
  ready_.pop_front();
  return prepared;
}

Batch BatchSource::Next() {
  Prepared prepared = prioritized() ? DrawPrioritized() : TakeReady();
  Require(prepared.status, training::v1::FAILURE_CAUSE_DATA);
  position_ = prepared.after;
  if (!prepared.sent) return ToDevice(std::move(prepared.batch));
  Receive(prepared);
  return std::move(prepared.batch);
}

Batch BatchSource::Fetch(std::vector<int64_t> examples) const {
  Prepared prepared = Prepare(std::move(examples));
  Require(prepared.status, training::v1::FAILURE_CAUSE_DATA);
  return ToDevice(std::move(prepared.batch));
}

void BatchSource::Seek(const SamplerPosition& position) {
  Stop();
  if (prioritized_) prioritized_->Seek(position);
  if (followed_) followed_->Seek(position);
  if (sampler_) sampler_->Seek(position);
  position_ = position;
  Start();
}

void BatchSource::ChangeExamples(const std::function<void()>& change) {
  Stop();
  const int64_t dropped = dataset_.dropped();
  change();
  if (followed_) followed_->Seek(position_);
  if (prioritized_) {
    const auto known = static_cast<int64_t>(prioritized_->priorities().size());
    const int64_t gone = std::min(known, dataset_.dropped() - dropped);
    const absl::Span<const float> priorities = dataset_.priorities();
    prioritized_->Slide(gone, priorities.subspan(static_cast<size_t>(known - gone)));
  }
  Start();
}

void BatchSource::Reprioritize(const torch::Tensor& losses) {
  // Sync: the next draw depends on these losses. This is the cost of prioritized sampling on a GPU.
  const torch::Tensor host = losses.to(at::kCPU, at::kFloat).contiguous();
  prioritized_->Update(drawn_, {host.const_data_ptr<float>(), drawn_.size()});
}

torch::Tensor BatchSource::priorities() const {
  return prioritized() ? torch::tensor(prioritized_->priorities()) : torch::Tensor();
}

void BatchSource::RestorePriorities(const torch::Tensor& priorities, int64_t next) {
  // A tensor from a file may be a view that is not contiguous.
  const torch::Tensor host = priorities.to(at::kCPU, at::kFloat).contiguous();
  const int64_t kept = dataset_.SizeBefore(static_cast<uint64_t>(next));
  const bool follows = batches_per_epoch_ == std::numeric_limits<int64_t>::max();
  // Another number of priorities belongs to other data, so keep the current ones.
  if (kept > host.numel() || (!follows && kept != host.numel())) return;
  const float* const end = host.const_data_ptr<float>() + host.numel();
  prioritized_->Restore({end - kept, end});
  if (kept == dataset_.training_size()) return;
  prioritized_->Slide(
      0, absl::MakeConstSpan(dataset_.priorities()).subspan(static_cast<size_t>(kept)));
}

}  // namespace genesis
