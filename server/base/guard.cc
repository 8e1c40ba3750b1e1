#include "server/base/guard.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

std::atomic<int64_t> caught_errors{0};

}  // namespace

absl::Status CaughtError(const char* place, const std::exception& error) {
  ++caught_errors;
  spdlog::error("defect: {} threw: {}", place, OneLine(error.what(), kMaxMessageBytes));
  return absl::InternalError(
      absl::StrCat("a defect of the daemon ended ", place,
                   "; please report the line of its log that begins with \"defect\""));
}

int64_t TakeCaughtErrors() { return caught_errors.exchange(0); }

}  // namespace genesis
