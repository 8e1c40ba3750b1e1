#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <utility>

#include "trainer/optim/part_of.h"

namespace genesis {
namespace {

constexpr char kStep[] = "step";

// LibTorch's fused kernels read memory linearly and ignore strides. A tensor in another memory
// order, such as channels_last, is therefore passed as a flat view of its memory.
at::Tensor Memory(const at::Tensor& dense) {
  TORCH_CHECK(dense.is_non_overlapping_and_dense(), "a parameter of sizes ", dense.sizes(),
              " and strides ", dense.strides(), " has memory that is not its own");
  return dense.is_contiguous() ? dense : dense.as_strided({dense.numel()}, {1});
}

// Returns the gradient's memory in the order of its parameter.
at::Tensor Memory(const at::Tensor& gradient, const at::Tensor& master) {
  if (gradient.strides() == master.strides()) return Memory(gradient);
  return Memory(at::empty_like(master).copy_(gradient));
}

}  // namespace

Optimizer::Optimizer(std::vector<at::Tensor> masters, const training::v1::OptimizerSpec& spec,
                     const std::vector<OptimizerGroup>& groups, OptimizerShare share)
    : masters_(std::move(masters)), share_(std::move(share)), entries_(masters_.size()) {
  settings_.kind = spec.kind();
  settings_.beta1 = MinusOneIsZero(spec.beta1());
  settings_.beta2 = MinusOneIsZero(spec.beta2());
  settings_.epsilon = spec.epsilon();
  settings_.momentum = spec.momentum();
  settings_.nesterov = spec.nesterov();
  for (const OptimizerGroup& group : groups) AddGroup(group);
}

void Optimizer::AddGroup(const OptimizerGroup& given) {
  const at::NoGradGuard no_grad;
  Group group;
  group.learning_rate = given.learning_rate;
  group.weight_decay = given.weight_decay;
  group.parameters = given.parameters;
  for (const int64_t number : group.parameters) {
    const auto i = static_cast<size_t>(number);
    if (!share_.owned.empty() && !share_.owned[i]) continue;
    entries_[i] = MakeEntry(i, share_);
    group.numbers.push_back(number);
    group.masters.push_back(OwnPart(Memory(masters_[i])));
    std::vector<at::Tensor>* const lists[] = {&group.first, &group.second};
    size_t list = 0;
    for (const auto& [name, tensor] : entries_[i]) {
      if (name == kStep) {
        group.steps.push_back(tensor);
      } else {
        lists[list++]->push_back(OwnPart(Memory(tensor)));
      }
    }
  }
  groups_.push_back(std::move(group));
}

at::Tensor Optimizer::OwnPart(const at::Tensor& memory) const {
  if (share_.parts == 1) return memory;
  const auto [begin, end] = PartOf(memory.numel(), share_.part, share_.parts);
  return memory.as_strided({memory.numel()}, {1}).narrow(0, begin, end - begin);
}

void Optimizer::Step(const std::vector<at::Tensor>& gradients, const RateFactor& rate_factor,
                     const std::vector<at::Tensor>& grad_scales, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group group = With(groups_[g], gradients);
    if (group.numbers.empty()) continue;
    std::vector<at::Tensor> own;
    own.reserve(group.numbers.size());
    for (const int64_t number : group.numbers) {
      const auto i = static_cast<size_t>(number);
      own.push_back(OwnPart(Memory(gradients[i], masters_[i])));
    }
    if (is_sgd()) {
      StepSgd(group, own, rate_factor, grad_scales[g], found_inf);
    } else {
      StepAdam(group, own, rate_factor, grad_scales[g], found_inf);
    }
  }
}

Optimizer::RateFactor Optimizer::Rate(const Group& group, const RateFactor& factor) {
  return std::visit([&](const auto& by) { return RateFactor(by * group.learning_rate); }, factor);
}

Optimizer::Group Optimizer::With(const Group& group, const std::vector<at::Tensor>& gradients) {
  const auto has = [&](int64_t number) { return gradients[static_cast<size_t>(number)].defined(); };
  if (std::all_of(group.numbers.begin(), group.numbers.end(), has)) return group;
  Group part;
  part.learning_rate = group.learning_rate;
  part.weight_decay = group.weight_decay;
  const auto take = [](const std::vector<at::Tensor>& from, size_t i, std::vector<at::Tensor>& to) {
    if (!from.empty()) to.push_back(from[i]);
  };
  for (size_t i = 0; i < group.numbers.size(); ++i) {
    if (!has(group.numbers[i])) continue;
    part.numbers.push_back(group.numbers[i]);
    take(group.masters, i, part.masters);
    take(group.steps, i, part.steps);
    take(group.first, i, part.first);
    take(group.second, i, part.second);
  }
  return part;
}

void Optimizer::StepAdam(Group& group, const std::vector<at::Tensor>& gradients,
                         const RateFactor& rate_factor, const at::Tensor& grad_scale,
                         const at::Tensor& found_inf) {
  at::_foreach_add_(group.steps, 1);
  const auto update = [&](const auto& rate) {
    const auto call = [&](auto kernel) {
      kernel(group.masters, gradients, group.first, group.second,
             /*max_exp_avg_sqs=*/at::TensorList(), group.steps, rate, settings_.beta1,
             settings_.beta2, group.weight_decay, settings_.epsilon, /*amsgrad=*/false,
             /*maximize=*/false, grad_scale, found_inf);
    };
    if (settings_.kind == training::v1::OPTIMIZER_KIND_ADAM) {
      call([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    } else {
      call([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    }
  };
  std::visit(update, Rate(group, rate_factor));
  // A skipped update does not count as a step.
  at::_foreach_sub_(group.steps, std::vector<at::Tensor>(group.steps.size(), found_inf));
}

void Optimizer::StepSgd(Group& group, const std::vector<at::Tensor>& gradients,
                        const RateFactor& rate_factor, const at::Tensor& grad_scale,
                        const at::Tensor& found_inf) {
  // The buffers begin at zero, so the kernel's formula for later steps also gives torch's first
  // step (momentum * 0 + gradient). A skipped first step therefore needs no special case.
  constexpr bool kFirstStep = false;
  const auto update = [&](const auto& rate) {
    at::_fused_sgd_(group.masters, gradients, group.first, group.weight_decay, settings_.momentum,
                    rate, /*dampening=*/0.0, settings_.nesterov, /*maximize=*/false, kFirstStep,
                    grad_scale, found_inf);
  };
  std::visit(update, Rate(group, rate_factor));
}

OptimizerState Optimizer::state(double rate_factor) const {
  OptimizerState state = settings_;
  state.parameters = entries_;
  for (const Group& group : groups_) {
    state.groups.push_back({.learning_rate = group.learning_rate,
                            .scheduled_learning_rate = group.learning_rate * rate_factor,
                            .weight_decay = group.weight_decay,
                            .parameters = group.parameters});
  }
  return state;
}

Optimizer::Entry Optimizer::NewEntry(size_t parameter) const {
  return MakeEntry(parameter, OptimizerShare());
}

Optimizer::Entry Optimizer::MakeEntry(size_t parameter, const OptimizerShare& share) const {
  const at::Tensor& master = masters_[parameter];
  if (!is_sgd()) {
    const at::Tensor step = at::zeros({}, master.options().dtype(at::kFloat));
    return {{kStep, step}, {"exp_avg", share.zeros(master)}, {"exp_avg_sq", share.zeros(master)}};
  }
  if (has_momentum()) return {{"momentum_buffer", share.zeros(master)}};
  return {};
}

void Optimizer::LoadState(const OptimizerState& state) {
  const at::NoGradGuard no_grad;
  const OptimizerState own = this->state();
  for (size_t i = 0; i < own.parameters.size(); ++i) {
    for (size_t j = 0; j < own.parameters[i].size(); ++j) {
      own.parameters[i][j].second.copy_(state.parameters[i][j].second);
    }
  }
}

}  // namespace genesis
