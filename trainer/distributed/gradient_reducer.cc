#include "trainer/distributed/gradient_reducer.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/impl/VirtualGuardImpl.h"

namespace genesis {
namespace {

// Sizes in elements, as in torch.nn.parallel.DistributedDataParallel: a small bucket first, so that
// the exchange begins early.
constexpr int64_t kFirstBucket = (int64_t{1} << 20) / 4;
constexpr int64_t kBucket = (int64_t{25} << 20) / 4;
// Each gradient begins on a cache line.
constexpr int64_t kAlignment = 16;
// Minimum number of elements of a lent gradient. Smaller ones stay in the L2 cache, so copying them
// is cheaper than reading them from another process.
constexpr int64_t kLent = 65536;
// Elements after the gradients: the loss, the control flags, the counts of arrived gradients.
constexpr int64_t kLoss = 1;
constexpr int64_t kFlags = 8;

int64_t Aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

at::ScalarType WireType(const training::v1::DistributedSpec& spec) {
  switch (spec.gradient_compression()) {
    case training::v1::GRADIENT_COMPRESSION_FP16:
      return at::kHalf;
    case training::v1::GRADIENT_COMPRESSION_BF16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

at::Tensor NormsOf(const std::vector<at::Tensor>& tensors) {
  return at::stack(at::_foreach_norm(tensors, 2, at::kFloat));
}

// Computes the norms of whole tensors from the norms of their parts, [parts, tensors]. Uses double
// because the square of a float32 may overflow.
at::Tensor Joined(const at::Tensor& norms) {
  return norms.to(at::kDouble).square_().sum(0).sqrt_().to(at::kFloat);
}

}  // namespace

GradientReducer::GradientReducer(RankGroup& ranks, const std::vector<at::Tensor>& masters,
                                 const training::v1::DistributedSpec& spec, size_t common)
    : ranks_(ranks),
      share_(at::scalar_tensor(1.0 / ranks.size(), at::kFloat)),
      on_gpu_(!masters.front().is_cpu()),
      compressed_(WireType(spec) != at::kFloat),
      error_feedback_(compressed_ && spec.use_error_feedback()) {
  const at::NoGradGuard no_grad;
  std::vector<BucketSize> sizes = PlanBuckets(masters);
  int64_t bytes = 0;
  for (BucketSize& size : sizes) {
    size.type = WireType(spec);
    bytes += size.elements * static_cast<int64_t>(c10::elementSize(size.type));
  }
  const auto parameters = static_cast<int64_t>(masters.size());
  const int64_t control = kLoss + kFlags + parameters;
  const int64_t end = sizes.back().elements;
  if (!compressed_) sizes.back().elements += control;
  if (compressed_ || common > 0) {
    sizes.push_back({.elements = control + (common > 0 ? ranks_.size() * parameters : 0)});
  }
  std::string way;
  transport_ = ranks_.MakeTransport(sizes, common, masters.front().device(), &way);
  scattered_ = !compressed_ && common > 0 && transport_->common().defined();
  const std::string why_not_lent = transport_->why_not_lent();
  lends_ = scattered_ && why_not_lent.empty();
  if (scattered_ && !lends_) absl::StrAppend(&way, ", copied, because ", why_not_lent);
  PlaceControl(end, parameters);
  description_ = absl::StrFormat(
      "%d %s, %.1f MiB%s, by %s", buckets_.size(), buckets_.size() == 1 ? "bucket" : "buckets",
      static_cast<double>(bytes) / (1 << 20), compressed_ ? " compressed" : "", way);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (scattered_) {
      buckets_[i].flat = at::empty({sizes[i].elements}, masters.front().options());
    } else if (!travels()) {
      buckets_[i].flat = transport_->buffer(i);
    } else {
      buckets_[i].flat = at::zeros({sizes[i].elements}, masters.front().options());
      if (on_gpu_ && !on_device()) buckets_[i].sent.emplace(masters.front().device().type());
    }
    if (error_feedback_) buckets_[i].residual = at::zeros_like(buckets_[i].flat);
  }
  CutMemory(masters);
  if (scattered_) Scatter();
  if (!on_gpu_) CutParts();
}

// Places the control elements after the gradients of the last bucket. If that bucket is in 16 bits
// or scattered, they get a separate bucket, together with the norms.
void GradientReducer::PlaceControl(int64_t end, int64_t parameters) {
  const bool apart = compressed_ || scattered_;
  const int64_t flags = kFlags + parameters;
  control_bucket_ = apart ? buckets_.size() : buckets_.size() - 1;
  const at::Tensor& buffer = transport_->buffer(control_bucket_);
  const int64_t begin = apart ? 0 : end;
  loss_ = buffer[begin];
  // The host reads the flags, so they stay off the device.
  control_ = on_device() ? at::zeros({flags}) : buffer.narrow(0, begin + kLoss, flags);
  if (scattered_) {
    norms_ = buffer.narrow(0, kLoss + flags, ranks_.size() * parameters).view({ranks_.size(), -1});
  }
  arrived_ = at::ones({parameters});
}

void GradientReducer::Scatter() {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    std::vector<ScatteredGradient> gradients;
    for (const size_t parameter : buckets_[i].parameters) {
      const int64_t begin = offset_of_[parameter];
      const IndexRange part = PartOf(memory_[parameter].numel(), ranks_.rank(), ranks_.size());
      gradients.push_back({.begin = begin,
                           .own = {begin + part.begin, begin + part.end},
                           .lent = Lends(parameter)});
    }
    transport_->Scatter(i, std::move(gradients), buckets_[i].flat, share_.item<float>());
  }
}

void GradientReducer::CutParts() {
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (scattered_ && rank != ranks_.rank()) continue;
    std::vector<at::Tensor>& parts = parts_.emplace_back();
    for (size_t i = 0; i < memory_.size(); ++i) {
      const IndexRange part = PartOf(memory_[i].numel(), rank, ranks_.size());
      parts.push_back(buckets_[bucket_of_[i]].flat.narrow(0, offset_of_[i] + part.begin,
                                                          part.end - part.begin));
    }
  }
}

// Assigns the parameters to buckets_.
std::vector<BucketSize> GradientReducer::PlanBuckets(const std::vector<at::Tensor>& masters) {
  std::vector<BucketSize> sizes;
  bucket_of_.resize(masters.size());
  offset_of_.resize(masters.size());
  int64_t room = 0;
  for (size_t i = masters.size(); i-- > 0;) {
    const int64_t elements = Aligned(masters[i].numel());
    if (sizes.empty() || room <= 0) {
      room = sizes.empty() ? kFirstBucket : kBucket;
      sizes.emplace_back();
      buckets_.emplace_back();
    }
    bucket_of_[i] = sizes.size() - 1;
    offset_of_[i] = sizes.back().elements;
    buckets_.back().parameters.push_back(i);
    sizes.back().elements += elements;
    room -= elements;
  }
  Restart();
  return sizes;
}

void GradientReducer::CutMemory(const std::vector<at::Tensor>& masters) {
  for (size_t i = 0; i < masters.size(); ++i) {
    const size_t bucket = bucket_of_[i];
    memory_.push_back(Cut(buckets_[bucket].flat, i, masters[i]));
    places_.push_back(scattered_ ? Cut(transport_->buffer(bucket), i, masters[i]) : memory_.back());
  }
}

at::Tensor GradientReducer::Cut(const at::Tensor& flat, size_t parameter,
                                const at::Tensor& like) const {
  return flat.as_strided(like.sizes(), like.strides(), offset_of_[parameter]);
}

void GradientReducer::Restart() {
  next_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
}

void GradientReducer::Put(size_t parameter, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  at::Tensor place = places_[parameter];
  if (Lends(parameter)) {
    Lend(parameter, gradient);
  } else if (!gradient.defined()) {
    place.zero_();
  } else if (gradient.scalar_type() != at::kFloat) {
    place.copy_(gradient).mul_(share_);
  } else {
    at::mul_out(place, gradient, share_);
  }
  MarkReady(parameter);
}

bool GradientReducer::Lends(size_t parameter) const {
  return lends_ && memory_[parameter].numel() >= kLent;
}

// Lends zeros for an undefined gradient, because all ranks must lend the same gradients.
void GradientReducer::Lend(size_t parameter, const at::Tensor& gradient) {
  const at::Tensor& memory = memory_[parameter];
  at::Tensor lent = gradient;
  if (!gradient.defined()) {
    lent = at::zeros_like(memory);
  } else if (gradient.scalar_type() != at::kFloat || gradient.strides() != memory.strides()) {
    lent = at::empty_like(memory).copy_(gradient);
  }
  transport_->Lend(bucket_of_[parameter], offset_of_[parameter], std::move(lent));
}

void GradientReducer::MarkReady(size_t parameter) {
  const size_t number = bucket_of_[parameter];
  Bucket& bucket = buckets_[number];
  TORCH_CHECK(bucket.missing > 0, "gradient ", parameter, " was ready before");
  if (--bucket.missing > 0) return;
  Pack(number);
  BeginReady(/*all=*/false);
}

void GradientReducer::Pack(size_t number) {
  if (!travels()) return;
  const at::NoGradGuard no_grad;
  Bucket& bucket = buckets_[number];
  const at::Tensor wire = transport_->buffer(number).narrow(0, 0, bucket.flat.numel());
  if (bucket.residual.defined()) bucket.flat.add_(bucket.residual);
  // Round on the GPU, so that fewer bytes are copied from it.
  const at::Tensor sent = bucket.sent ? bucket.flat.to(wire.scalar_type()) : bucket.flat;
  wire.copy_(sent, /*non_blocking=*/true);
  if (bucket.residual.defined()) {
    const at::Tensor& rounded = bucket.sent ? sent : wire;
    bucket.residual.copy_(bucket.flat).sub_(rounded);
    // An overflow belongs to this step, so it leaves no residual.
    bucket.residual.nan_to_num_(0, 0, 0);
  }
  if (bucket.sent) {
    const c10::impl::VirtualGuardImpl device(bucket.flat.device().type());
    bucket.sent->record(device.getStream(bucket.flat.device()));
  }
}

void GradientReducer::BeginReady(bool all) {
  const size_t end = all || scattered_ ? buckets_.size() : buckets_.size() - 1;
  for (; next_ < end && buckets_[next_].missing == 0; ++next_) {
    if (const auto& sent = buckets_[next_].sent) {
      if (all) {
        sent->synchronize();
      } else if (!sent->query()) {
        return;
      }
    }
    transport_->Begin(next_);
  }
}

template <typename Wait>
void GradientReducer::NoteWait(const Wait& wait) {
  const auto begin = std::chrono::steady_clock::now();
  wait();
  ranks_.NoteWait(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

void GradientReducer::Meet() {
  NoteWait([&] { transport_->Meet(); });
}

at::Tensor GradientReducer::Finish(const at::Tensor& loss, const at::Tensor& arrived) {
  const at::NoGradGuard no_grad;
  const at::Tensor arrivals = control_.narrow(0, kFlags, arrived.numel());
  arrivals.copy_(arrived);
  at::Tensor mean;
  if (on_device()) {
    mean = Exchange(loss);
    Agree();
  } else {
    WriteFlags();
    mean = Exchange(loss);
    ReadFlags();
  }
  arrived.copy_(arrivals);
  arrived_.copy_(arrivals);
  arrivals.zero_();
  return mean;
}

at::Tensor GradientReducer::Reduce(const at::Tensor& loss, const at::Tensor& arrived) {
  const at::NoGradGuard no_grad;
  arrived.copy_(arrived_);
  return Exchange(loss);
}

// Computes the means of gradients and loss, and the sums of the other elements of the last bucket.
at::Tensor GradientReducer::Exchange(const at::Tensor& loss) {
  // Sync: waits for the device if the sums are computed on the CPU.
  loss_.copy_(loss.detach());
  BeginReady(/*all=*/true);
  TORCH_CHECK(next_ == buckets_.size(), "a gradient is not ready");
  const bool apart = control_bucket_ == buckets_.size();
  if (apart && !scattered_) transport_->Begin(control_bucket_);
  for (size_t i = 0; i < buckets_.size(); ++i) Unpack(i);
  if (scattered_) {
    // The other ranks have zeros in this row, so the sum is this rank's norms.
    norms_.zero_();
    norms_[ranks_.rank()].copy_(NormsOf(parts_.front()));
    transport_->Begin(control_bucket_);
  }
  if (apart) NoteWait([&] { transport_->Await(control_bucket_); });
  if (lends_) transport_->TakeBack();
  Restart();
  return (loss_ / static_cast<float>(ranks_.size())).to(loss.device());
}

at::Tensor GradientReducer::Norms() const {
  const at::NoGradGuard no_grad;
  if (scattered_) return Joined(norms_);
  if (on_gpu_) return NormsOf(memory_);
  std::vector<at::Tensor> norms;
  for (const std::vector<at::Tensor>& parts : parts_) norms.push_back(NormsOf(parts));
  return Joined(at::stack(norms));
}

void GradientReducer::Agree() {
  WriteFlags();
  NoteWait([&] { ranks_.Sum(control_); });
  ReadFlags();
}

void GradientReducer::WriteFlags() {
  const ControlFlags& own = ranks_.own_flags();
  float* const flags = control_.mutable_data_ptr<float>();
  flags[0] = own.stop ? 1 : 0;
  flags[1] = own.checkpoint ? 1 : 0;
  flags[2] = own.time_is_up ? 1 : 0;
  flags[3] = static_cast<float>(own.seconds);
  flags[4] = own.fp32 ? 1 : 0;
  flags[5] = own.news ? 1 : 0;
  flags[6] = own.complete ? 1 : 0;
  flags[7] = own.plateau ? 1 : 0;
}

void GradientReducer::ReadFlags() {
  const float* const flags = control_.const_data_ptr<float>();
  ranks_.Agree({.stop = flags[0] > 0,
                .checkpoint = flags[1] > 0,
                .time_is_up = flags[2] > 0,
                .fp32 = flags[4] > 0,
                .complete = flags[6] > 0,
                .plateau = flags[7] > 0,
                .news = flags[5] > 0,
                .seconds = flags[3] / static_cast<float>(ranks_.size())});
}

void GradientReducer::Unpack(size_t number) {
  Bucket& bucket = buckets_[number];
  NoteWait([&] { transport_->Await(number); });
  if (travels()) {
    bucket.flat.copy_(transport_->buffer(number).narrow(0, 0, bucket.flat.numel()),
                      /*non_blocking=*/true);
  }
}

void GradientReducer::DropResidualsWhere(const at::Tensor& skipped) {
  if (!error_feedback_) return;
  if (skipped.is_cpu()) {
    if (skipped.const_data_ptr<float>()[0] != 0) DropResiduals();
    return;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor dropped = skipped != 0;
  for (const Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) bucket.residual.masked_fill_(dropped, 0);
  }
}

void GradientReducer::DropResiduals() {
  for (const Bucket& bucket : buckets_) {
    if (bucket.residual.defined()) bucket.residual.zero_();
  }
}

}  // namespace genesis
