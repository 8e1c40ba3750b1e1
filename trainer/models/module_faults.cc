#include "trainer/models/module_faults.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text/text.h"
#include "trainer/models/scripted_module.h"

namespace genesis {
namespace {

// Leaves room for the rest of a message.
constexpr size_t kMaxTracebackBytes = kMaxMessageBytes - 1024;
constexpr char kOriginal[] = "Traceback of TorchScript, original code (most recent call last):";
constexpr char kAny[] = "Traceback of TorchScript";

// Returns "" or the cure. Torch uses oneDNN's LSTM in BF16 on any processor, but oneDNN supports it
// only with AVX-512.
const char* Cure(const std::string& text) {
  if (!absl::StrContains(text, "could not create a primitive descriptor")) return "";
  return "; oneDNN has no such layer in this precision for this processor: train in FP32, or give "
         "the module as genesis.export writes it (model.exported)";
}

}  // namespace

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

std::string ModuleWords(const std::exception& error) {
  const std::string text = TorchText(error);
  // Skip the traceback of the serialized code, which repeats the original in generated source.
  size_t begin = text.find(kOriginal);
  if (begin == std::string::npos) begin = text.find(kAny);
  if (begin == std::string::npos) return OneLine(LastLine(text), kMaxLineBytes);
  // Lines of the traceback are indented. The exception's message, which may have several lines, is
  // not.
  size_t end = text.find('\n', begin);
  while (end != std::string::npos && end + 1 < text.size() &&
         (text[end + 1] == ' ' || text[end + 1] == '\n')) {
    end = text.find('\n', end + 1);
  }
  end = std::min(end, text.size());
  const std::string reason = absl::StrCat(
      OneLine(absl::StripAsciiWhitespace(absl::string_view(text).substr(end)), kMaxLineBytes),
      Cure(text));
  const absl::string_view traceback = absl::string_view(text).substr(begin, end - begin);
  return absl::StrCat(
      reason, "\n",
      BoundedText(absl::StripAsciiWhitespace(traceback), kMaxTracebackBytes - reason.size()));
}

}  // namespace genesis
