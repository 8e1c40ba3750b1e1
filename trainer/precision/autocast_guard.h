#pragma once

#include <ATen/autocast_mode.h>

#include <optional>

namespace genesis {

// torch.autocast for a scope: while it lives, the layers of this thread run in `format` on
// `device`. Without a format it does nothing. The end of the outermost guard drops the cached casts
// of weights, because the optimizer changes the weights next. For the forward pass only.
//
// Owner: a scope. Threads: acts on the calling thread alone. Failure: none.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> format);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const at::DeviceType device_;
  const bool active_;
  bool enabled_before_ = false;
  at::ScalarType format_before_ = at::kFloat;
};

}  // namespace genesis
