#include "trainer/step/train_step.h"

#include <ATen/record_function.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "trainer/data/splitmix.h"

namespace genesis {
namespace {

constexpr int64_t kFigures = 5;
// Steps that run before a capture: libraries choose kernels and allocate workspaces in them, which
// a capture does not allow.
constexpr int kStepsBeforeCapture = 3;

}  // namespace

TrainStep::TrainStep(const StepParts& parts, const TrainStepOptions& options)
    : parts_(parts),
      options_(options),
      loss_and_gradients_(parts.model),
      one_(torch::ones({}, parts.optimizer.masters().front().options())),
      last_found_inf_(torch::zeros_like(one_)),
      rates_(torch::zeros({2}, one_.options())) {
  if (parts.reducer != nullptr) {
    exchange_.emplace(parts.model, parts.weights, *parts.reducer,
                      /*overlaps=*/parts.faults.empty());
  }
  const bool cuda = one_.is_cuda();
  const auto pinned = torch::TensorOptions(torch::kFloat).pinned_memory(cuda);
  for (Slot& slot : slots_) {
    slot.rates = torch::empty({2}, pinned);
    slot.metrics = torch::empty({kFigures}, pinned);
    if (cuda) slot.copied.emplace(at::kCUDA);
  }
}

void TrainStep::SetFormat(const StepFormat& format, GradScaler* scaler, CompiledStep* compiled) {
  format_ = format;
  scaler_ = scaler;
  loss_and_gradients_.Use(format.autocast, compiled);
  eager_because_ = ReasonForEager(compiled);
  ForgetCapture();
}

std::string TrainStep::ReasonForEager(const CompiledStep* compiled) const {
  if (!options_.graphs) return "steps are not captured here";
  if (compiled != nullptr) return "a compiled step runs";
  if (parts_.reducer != nullptr && !parts_.reducer->on_device()) {
    return "ranks add up their gradients in memory of the host";
  }
  if (parts_.reducer != nullptr && parts_.reducer->has_residuals()) {
    return "the errors of compressed gradients are dropped where the loss scale changes";
  }
  if (parts_.source.prioritized()) return "prioritized sampling reads the losses of each step";
  if (!parts_.faults.empty()) return "rehearsals change single steps";
  return "";
}

void TrainStep::Run(int64_t step) {
  Slot& slot = slots_[static_cast<size_t>(next_slot_)];
  slot.evidence.examples.clear();
  if (!parts_.ranks.alone()) PrepareRank(step);
  slot.evidence.generator = at::detail::getDefaultCPUGenerator().get_state();
  SetRates(slot);
  const StepResults results = MakeOrRepeat(step, slot.evidence);
  slot.evidence.gradient_norms = results.gradient_norms;
  SendFigures(slot, results.metrics);
}

void TrainStep::PrepareRank(int64_t step) const {
  // Each rank draws its own numbers. They depend on no earlier step, so a resumed run draws them
  // again.
  const uint64_t seed = SplitMix64(options_.seed, static_cast<uint64_t>(step)).Next();
  torch::manual_seed(SplitMix64(seed, static_cast<uint64_t>(parts_.ranks.rank())).Next());
  if (parts_.model.changed_buffers().empty()) return;
  std::vector<torch::Tensor> buffers;
  for (const auto& [name, buffer] : parts_.model.buffers()) buffers.push_back(buffer);
  parts_.ranks.CopyFromFirst(buffers);
}

StepResults TrainStep::MakeOrRepeat(int64_t step, StepEvidence& evidence) {
  if (!eager_because_.empty()) {
    return Make(step, [&](int64_t i) { return Draw(step, i, evidence); });
  }
  std::vector<Batch> batches;
  for (int64_t i = 0; i < options_.gradient_accumulation_steps; ++i) {
    batches.push_back(Draw(step, i, evidence).batch);
  }
  // The graph contains the update, so wait for copies of the weights before it runs.
  AwaitCopy();
  if (captured_ ? captured_->Fits(batches) : Capture(step, batches)) {
    if (exchange_) exchange_->Agree();
    return captured_->Replay(batches);
  }
  return Make(step, [&](int64_t i) { return Drawn{.batch = batches[static_cast<size_t>(i)]}; });
}

TrainStep::Drawn TrainStep::Draw(int64_t step, int64_t micro_batch, StepEvidence& evidence) {
  RECORD_USER_SCOPE("draw");
  Drawn drawn{.batch = parts_.source.Next()};
  parts_.model.Draw(drawn.batch);
  drawn.unusual = parts_.faults.SpoilBatch(step, micro_batch, format_.reduced(), drawn.batch);
  evidence.examples.push_back(drawn.batch.examples);
  return drawn;
}

StepResults TrainStep::Make(int64_t step, const NextBatch& next, bool captured) {
  const torch::Tensor scale = scaler_ != nullptr ? scaler_->scale().clone() : one_;
  const std::unique_ptr<const ModelState> state = parts_.model.CopyState();

  torch::Tensor loss = AccumulateGradients(step, next);
  // Once other ranks have this rank's gradients, they update the weights that are being copied.
  if (parts_.shards != nullptr && parts_.shards->together()) AwaitCopy();
  // Sync: with several ranks the hosts wait for each other here, and for the device unless NCCL
  // exchanges gradients on it.
  if (exchange_) {
    loss = exchange_->Finish(loss, captured);
    if (parts_.source.prioritized()) Reprioritize();
  }

  RECORD_USER_SCOPE("update");
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor>& gradients = parts_.weights.gradients();
  // One pass over the gradients serves the metric, the finite test and the clipping.
  const torch::Tensor norms =
      exchange_ ? exchange_->Norms() : at::stack(at::_foreach_norm(gradients, 2, torch::kFloat));
  const torch::Tensor norm = at::linalg_vector_norm(norms);
  const torch::Tensor found_inf = torch::isfinite(norm).logical_not().to(torch::kFloat);
  const torch::Tensor unscaled_norm = scaler_ != nullptr ? norm / scale : norm;
  // Unscaling and clipping are one division in the optimizer.
  const std::vector<torch::Tensor> divisors = parts_.clipping.Divisors(norms, unscaled_norm, scale);

  AwaitCopy();
  parts_.optimizer.Step(parts_.weights.ArrivedGradients(), RateFactor(), divisors, found_inf);
  if (parts_.shards != nullptr) parts_.shards->ShareWeights();
  if (format_.reduced()) parts_.faults.SpoilWeights(step, parts_.weights.masters());
  parts_.weights.Publish();
  if (parts_.average != nullptr) parts_.average->Update(found_inf);
  if (scaler_ != nullptr) scaler_->Update(found_inf);
  // The examples of a skipped step would persist in buffers: after one overflow, batch norm would
  // have infinite means.
  if (state != nullptr) state->PutBackWhere(found_inf);
  if (parts_.reducer != nullptr) parts_.reducer->DropResidualsWhere(found_inf);

  last_found_inf_.copy_(found_inf);
  const torch::Tensor& next_scale = scaler_ != nullptr ? scaler_->scale() : one_;
  return {.metrics = at::stack({loss, unscaled_norm, scale, next_scale, found_inf}),
          .gradient_norms = norms};
}

torch::Tensor TrainStep::AccumulateGradients(int64_t step, const NextBatch& next) {
  parts_.weights.BeginStep();
  if (exchange_ && scaler_ != nullptr) exchange_->NoteScale(scaler_->scale());
  const int64_t micro_batches = options_.gradient_accumulation_steps;
  LossAndGradients::Share share{.micro_batches = micro_batches,
                                .scale = scaler_ != nullptr ? scaler_->scale() : torch::Tensor()};
  torch::Tensor total;
  for (int64_t i = 0; i < micro_batches; ++i) {
    const Drawn drawn = next(i);
    share.factor = format_.reduced() ? parts_.faults.LossFactor(step, i) : 1;
    const auto pass = [&] { return loss_and_gradients_.Add(drawn.batch, share, drawn.unusual); };
    const bool exchanged = exchange_ && i + 1 == micro_batches;
    const torch::Tensor loss = exchanged ? exchange_->RunLast(pass) : pass();
    if (!exchanged) parts_.weights.Accumulate();
    // Not while gradients are in flight: the ranks exchange losses here, and all ranks must
    // exchange in the same order.
    if (parts_.source.prioritized() && !exchanged) Reprioritize();
    total = total.defined() ? total + loss : loss;
  }
  if (format_.reduced()) {
    parts_.faults.SpoilGradients(step, scaler_ != nullptr, parts_.weights.gradients());
  }
  return total;
}

void TrainStep::Reprioritize() {
  // All ranks draw the same joint batches from the same priorities.
  parts_.source.Reprioritize(parts_.ranks.JoinAll(parts_.model.ExampleLosses()));
}

bool TrainStep::Capture(int64_t step, const std::vector<Batch>& micro_batches) {
  if (++eager_steps_ <= kStepsBeforeCapture) return false;
  const auto work = [this, step](const std::vector<Batch>& batches) {
    const auto next = [&batches](int64_t i) {
      return Drawn{.batch = batches[static_cast<size_t>(i)]};
    };
    return Make(step, next, /*captured=*/true);
  };
  try {
    captured_.emplace(options_.graphs(), micro_batches, work);
    log_line_ = absl::StrCat("captured in step ", step, ", replayed from then on");
  } catch (const std::exception& error) {
    eager_because_ = absl::StrCat("capture failed: ", error.what());
    log_line_ = absl::StrCat("eager from step ", step, " on, because ", eager_because_);
    if (exchange_) exchange_->Restart();
  }
  return captured_.has_value();
}

void TrainStep::ForgetCapture() {
  captured_.reset();
  eager_steps_ = 0;
}

void TrainStep::SetRates(Slot& slot) {
  const Schedule& schedule = parts_.schedule;
  if (!one_.is_cuda() || schedule.constant()) return;
  // Until the previous step is read, only the device knows whether it was applied.
  const double if_skipped = schedule.Factor(applied_, rate_reductions_);
  const double if_applied =
      unread_ == 0 ? if_skipped : schedule.Factor(applied_ + 1, rate_reductions_);
  float* const rates = slot.rates.mutable_data_ptr<float>();
  rates[0] = static_cast<float>(if_skipped - if_applied);
  rates[1] = static_cast<float>(if_applied);
  rates_.copy_(slot.rates, /*non_blocking=*/true);
}

Optimizer::RateFactor TrainStep::RateFactor() const {
  const Schedule& schedule = parts_.schedule;
  if (schedule.constant()) return schedule.Factor(0, 0);
  if (one_.is_cuda()) return last_found_inf_ * rates_[0] + rates_[1];
  const bool skipped = last_found_inf_.const_data_ptr<float>()[0] != 0;
  return schedule.Factor(applied_ + (unread_ > 0 && !skipped ? 1 : 0), rate_reductions_);
}

void TrainStep::SendFigures(Slot& slot, const torch::Tensor& metrics) {
  next_slot_ = 1 - next_slot_;
  ++unread_;
  slot.metrics.copy_(metrics, /*non_blocking=*/true);
  if (slot.copied) {
    const c10::impl::VirtualGuardImpl device(at::kCUDA);
    slot.copied->record(device.getStream(one_.device()));
  }
}

TrainStep::Slot& TrainStep::OldestUnread() {
  return slots_[static_cast<size_t>(unread_ == 2 ? next_slot_ : 1 - next_slot_)];
}

StepMetrics TrainStep::Read() {
  Slot& slot = OldestUnread();
  --unread_;
  // Sync: on CUDA waits until the step's metrics have arrived.
  if (slot.copied && parts_.reducer != nullptr && parts_.reducer->on_device()) {
    parts_.ranks.AwaitDevice([&slot] { return slot.copied->query(); });
  } else if (slot.copied) {
    slot.copied->synchronize();
  }
  const float* const host = slot.metrics.const_data_ptr<float>();
  // The sign of a NaN depends on the kernel and has no meaning, but it would be printed.
  const auto unsigned_nan = [](float value) { return std::isnan(value) ? std::abs(value) : value; };
  evidence_ = std::move(slot.evidence);
  StepMetrics metrics{.loss = unsigned_nan(host[0]),
                      .grad_norm = unsigned_nan(host[1]),
                      .loss_scale = host[2],
                      .next_loss_scale = host[3],
                      .learning_rate = parts_.schedule.LearningRate(applied_, rate_reductions_),
                      .skipped = host[4] != 0};
  if (!metrics.skipped) ++applied_;
  return metrics;
}

}  // namespace genesis
