#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/optim/optimizer_state.h"

namespace genesis {

// The part of an update that one of several optimizers makes, each in a process of its own. By
// default all of it.
struct OptimizerShare {
  std::vector<bool> owned;  // By parameter; the others have no state here. Empty: all.
  // This is the optimizer number `part` of `parts` that update one memory, each its part of every
  // parameter. The number of steps is each one's own.
  int part = 0;
  int parts = 1;
  // Makes the state of a parameter, zeros like it.
  std::function<at::Tensor(const at::Tensor& master)> zeros = [](const at::Tensor& master) {
    return at::zeros_like(master);
  };
};

// torch.optim.AdamW, Adam or SGD with fused=True: one kernel per group updates all parameters,
// divides the gradients by a scale, and does nothing at all when an overflow was found; none of it
// needs the host.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class Optimizer {
 public:
  // The multiplier of all groups' learning rates: a number, or a float32 tensor without
  // dimensions on the device where only the device knows it.
  using RateFactor = std::variant<double, at::Tensor>;

  using Entry = std::vector<std::pair<std::string, at::Tensor>>;

  // `masters` are float32, dense in memory in any order, and updated in place. `spec` has every
  // default filled in. Each parameter belongs to one of `groups` (GroupParameters).
  Optimizer(std::vector<at::Tensor> masters, const training::v1::OptimizerSpec& spec,
            const std::vector<OptimizerGroup>& groups, OptimizerShare share = {});

  // One update from one gradient per parameter; as torch's optimizers do, it leaves a parameter
  // whose gradient is undefined as it is, with its state and without weight decay. Gradients of a
  // group are divided by its entry in `grad_scales` first: in place, unless a gradient lies in
  // another order than its parameter.
  // `found_inf` is exactly 1 to skip the update, else 0. Both are float32, without dimensions.
  void Step(const std::vector<at::Tensor>& gradients, const RateFactor& rate_factor,
            const std::vector<at::Tensor>& grad_scales, const at::Tensor& found_inf);

  const std::vector<at::Tensor>& masters() const { return masters_; }
  // Shares memory with the optimizer; parameters that it does not own have no entry. `rate_factor`
  // is that of the next step.
  OptimizerState state(double rate_factor = 1) const;
  // Zeros in the shape of a parameter's entry.
  Entry NewEntry(size_t parameter) const;
  // Copies the values in of what it owns. Requires the same kind, and entries of the same shapes.
  void LoadState(const OptimizerState& state);

 private:
  // Parallel lists of the parameters of one group.
  struct Group {
    double learning_rate = 0;
    double weight_decay = 0;
    std::vector<int64_t> parameters;  // All of the group.
    std::vector<int64_t> numbers;     // Those that are owned; the lists go along with it.
    // All but steps are views of this part of the memory, in its order. SGD: first is the momentum.
    std::vector<at::Tensor> masters, steps, first, second;
  };

  // A tensor where only the device knows the rate.
  static RateFactor Rate(const Group& group, const RateFactor& factor);
  // The parameters of a group that have a gradient.
  static Group With(const Group& group, const std::vector<at::Tensor>& gradients);
  bool is_sgd() const { return settings_.kind == training::v1::OPTIMIZER_KIND_SGD; }
  bool has_momentum() const { return settings_.momentum > 0; }
  void AddGroup(const OptimizerGroup& given);
  at::Tensor OwnPart(const at::Tensor& memory) const;
  Entry MakeEntry(size_t parameter, const OptimizerShare& share) const;
  void StepAdam(Group& group, const std::vector<at::Tensor>& gradients,
                const RateFactor& rate_factor, const at::Tensor& grad_scale,
                const at::Tensor& found_inf);
  void StepSgd(Group& group, const std::vector<at::Tensor>& gradients,
               const RateFactor& rate_factor, const at::Tensor& grad_scale,
               const at::Tensor& found_inf);

  OptimizerState settings_;  // Without tensors.
  std::vector<at::Tensor> masters_;
  const OptimizerShare share_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;  // Of each parameter, whole; the groups' lists are views of them.
};

}  // namespace genesis
