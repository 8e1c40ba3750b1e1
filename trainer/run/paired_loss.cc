#include "trainer/run/paired_loss.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "genesis/training/v1/precision.pb.h"

namespace genesis {
namespace {

// A user's module may change its buffers by the examples that it sees.
class KeptBuffers {
 public:
  explicit KeptBuffers(const Model& model) {
    for (const auto& [name, buffer] : model.buffers()) kept_.emplace_back(buffer, buffer.clone());
  }
  ~KeptBuffers() {
    for (auto& [buffer, before] : kept_) buffer.copy_(before);
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

// The generators that a forward pass may draw from: torch's of the CPU, and that of a GPU.
class Generators {
 public:
  explicit Generators(at::Device device) {
    all_.push_back(at::detail::getDefaultCPUGenerator());
    if (device.is_cuda()) all_.push_back(at::globalContext().defaultGenerator(device));
  }
  at::Generator& cpu() { return all_.front(); }
  std::vector<torch::Tensor> Take() const {
    std::vector<torch::Tensor> states;
    for (const at::Generator& generator : all_) states.push_back(generator.get_state());
    return states;
  }
  void Put(const std::vector<torch::Tensor>& states) {
    for (size_t i = 0; i < all_.size(); ++i) all_[i].set_state(states[i]);
  }

 private:
  std::vector<at::Generator> all_;
};

}  // namespace

PairedLoss ComparePrecision(const StepParts& parts, const StepFormat& format,
                            const StepEvidence& evidence, int64_t step) {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<const void> state = parts.model.KeepState();
  const KeptBuffers buffers(parts.model);
  Generators generators(parts.model.parameters().front().second.device());
  const std::vector<torch::Tensor> now = generators.Take();
  generators.cpu().set_state(evidence.generator);
  PairedLoss sum;
  for (size_t i = 0; i < evidence.examples.size(); ++i) {
    const auto micro_batch = static_cast<int64_t>(i);
    Batch batch = parts.source.Fetch(evidence.examples[i]);
    parts.model.Draw(batch);
    const std::vector<torch::Tensor> drawn = generators.Take();
    if (format.weights != at::kFloat) parts.weights.SetFormat(at::kFloat);
    sum.fp32 += parts.model.Loss(batch, std::nullopt).item<double>();
    if (format.weights != at::kFloat) parts.weights.SetFormat(format.weights);
    generators.Put(drawn);
    parts.rehearsals.SpoilBatch(step, micro_batch, format.reduced(), batch);
    sum.reduced += parts.model.Loss(batch, format.autocast).item<double>() *
                   parts.rehearsals.LossFactor(step, micro_batch);
  }
  generators.Put(now);
  const auto count = static_cast<double>(evidence.examples.size());
  const bool half = format.weights == at::kHalf || format.autocast == at::kHalf;
  return {.reduced = sum.reduced / count,
          .fp32 = sum.fp32 / count,
          .rounding_error = std::exp2(half ? -11 : -8)};
}

void ShareFromFirst(RankGroup& ranks, PairedLoss& pair) {
  training::v1::LossCurve told;
  told.add_losses(pair.reduced);
  told.add_losses(pair.fp32);
  told.add_losses(pair.rounding_error);
  told.ParseFromString(ranks.FromFirst(told.SerializeAsString()));
  pair = {.reduced = told.losses(0), .fp32 = told.losses(1), .rounding_error = told.losses(2)};
}

}  // namespace genesis
