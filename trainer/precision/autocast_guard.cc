#include "trainer/precision/autocast_guard.h"

namespace genesis {

AutocastGuard::AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> format)
    : device_(device), active_(format.has_value()) {
  if (!active_) return;
  enabled_before_ = at::autocast::is_autocast_enabled(device_);
  format_before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *format);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, enabled_before_);
  at::autocast::set_autocast_dtype(device_, format_before_);
}

}  // namespace genesis
