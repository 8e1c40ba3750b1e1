#include "trainer/runtime/torch_errors.h"

#include <c10/util/Exception.h>

#include <new>

#include "absl/strings/match.h"

namespace genesis {

std::string TorchText(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  const size_t frames = text.find("\nException raised from");
  return frames == std::string::npos ? text : text.substr(0, frames);
}

bool IsOutOfMemory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return true;
  }
  const std::string text = TorchText(error);
  return absl::StrContains(text, "can't allocate memory") ||
         absl::StrContains(text, "not enough memory") ||
         absl::StrContains(text, "CUDA out of memory") ||
         absl::StrContains(text, "CUBLAS_STATUS_ALLOC_FAILED");
}

bool IsDeviceFault(const std::exception& error) {
  const std::string text = TorchText(error);
  return dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr ||
         absl::StrContains(text, "CUDA error") || absl::StrContains(text, "cuDNN error");
}

}  // namespace genesis
