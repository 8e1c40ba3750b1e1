#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

namespace genesis {

// A `GradientHooks` calls back in a backward pass as soon as the gradient of a parameter is
// complete (torch.Tensor.register_post_accumulate_grad_hook). Joint graphs, which return all
// gradients together, trigger no call.
//
// Owner: the train step; the parameters outlive it. Threads: one, and autograd's thread while a
// pass runs.
class GradientHooks {
 public:
  using Callback = std::function<void(size_t parameter)>;

  explicit GradientHooks(std::vector<torch::Tensor> parameters);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // A scope that enables the callback. Other passes, such as those of a diagnosis, do not call
  // back.
  class Scope {
   public:
    Scope(GradientHooks& hooks, Callback callback) : hooks_(hooks) {
      *hooks_.callback_ = std::move(callback);
    }
    ~Scope() { *hooks_.callback_ = nullptr; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GradientHooks& hooks_;
  };

 private:
  class Hook;

  const std::vector<torch::Tensor> parameters_;
  const std::shared_ptr<Callback> callback_;
};

}  // namespace genesis
