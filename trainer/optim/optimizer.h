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

// The part of an update that one of several optimizers performs, each in its own process. The
// default is the whole update.
struct OptimizerShare {
  std::vector<bool> owned;  // Per parameter; others have no state here. Empty: all.
  // Number of this optimizer, and of all optimizers that update the same memory. Each updates its
  // part of every parameter and counts its own steps.
  int part = 0;
  int parts = 1;
  // Creates the state of a parameter: zeros like it.
  std::function<at::Tensor(const at::Tensor& master)> zeros = [](const at::Tensor& master) {
    return at::zeros_like(master);
  };
};

// torch.optim.AdamW, Adam or SGD with fused=True: one kernel per group updates all parameters,
// divides the gradients by a scale, and does nothing if an overflow was found. The host is not
// involved.
//
// Owner: the run. Threads: one. Failure: exceptions of LibTorch.
class Optimizer {
 public:
  // The multiplier of all groups' learning rates: a number, or a float32 tensor without dimensions
  // on the device if only the device knows it.
  using RateFactor = std::variant<double, at::Tensor>;

  using Entry = std::vector<std::pair<std::string, at::Tensor>>;

  // `masters` are float32, dense in memory in any order, and updated in place. `spec` has every
  // default filled in. Each parameter belongs to one of `groups` (GroupParameters).
  Optimizer(std::vector<at::Tensor> masters, const training::v1::OptimizerSpec& spec,
            const std::vector<OptimizerGroup>& groups, OptimizerShare share = {});

  // Performs one update from one gradient per parameter. Like torch's optimizers, it skips a
  // parameter whose gradient is undefined, including its state and weight decay. First divides the
  // gradients of a group by its entry in `grad_scales`, in place unless a gradient and its
  // parameter differ in memory order. `found_inf` is exactly 1 to skip the update, otherwise 0. It
  // and the scales are float32, without dimensions.
  void Step(const std::vector<at::Tensor>& gradients, const RateFactor& rate_factor,
            const std::vector<at::Tensor>& grad_scales, const at::Tensor& found_inf);

  const std::vector<at::Tensor>& masters() const { return masters_; }
  // Returns the state, which shares memory with the optimizer. Parameters that it does not own have
  // no entry. `rate_factor` is that of the next step.
  OptimizerState state(double rate_factor = 1) const;
  // Returns zeros in the shape of a parameter's entry.
  Entry NewEntry(size_t parameter) const;
  // Copies the values of the owned parameters from `state`, which must be of the same kind and have
  // entries of the same shapes.
  void LoadState(const OptimizerState& state);

 private:
  // Parallel lists of the parameters of one group.
  struct Group {
    double learning_rate = 0;
    double weight_decay = 0;
    std::vector<int64_t> parameters;  // All parameters of the group.
    std::vector<int64_t> numbers;     // Owned parameters, parallel to the lists below.
    // Except steps, these are views of this optimizer's part of the memory, in memory order. In
    // SGD, first is the momentum buffer.
    std::vector<at::Tensor> masters, steps, first, second;
  };

  // Returns a tensor if only the device knows the rate.
  static RateFactor Rate(const Group& group, const RateFactor& factor);
  // Returns the parameters of a group that have a gradient.
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

  OptimizerState settings_;  // Kind and settings, without tensors.
  std::vector<at::Tensor> masters_;
  const OptimizerShare share_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;  // Whole state of each parameter; the groups' lists are views of it.
};

}  // namespace genesis
