#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "server/base/callback.h"

namespace genesis {

// Returns a callback that runs `callback` exactly once. If every copy is destroyed without a result
// (the task threw or was never run), the caller receives INTERNAL instead of waiting forever.
template <typename T>
Callback<T> AnswerOnce(Callback<T> callback) {
  class Pending {
   public:
    explicit Pending(Callback<T> first) : answer_(std::move(first)) {}
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    ~Pending() { Give(absl::InternalError("the daemon dropped the call; its log says why")); }
    void Give(const absl::StatusOr<T>& result) {
      if (!given_.exchange(true)) answer_(result);
    }

   private:
    const Callback<T> answer_;
    std::atomic<bool> given_{false};
  };
  return [pending = std::make_shared<Pending>(std::move(callback))](
             const absl::StatusOr<T>& result) { pending->Give(result); };
}

}  // namespace genesis
