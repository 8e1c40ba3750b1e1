#pragma once

#include "absl/status/status.h"

namespace genesis {

// The receiver of the messages of one watch. Both methods are called with the feed's lock held, so
// they must not block or call the feed.
template <typename Response>
class WatchSink {
 public:
  virtual ~WatchSink() = default;
  // `response` stays unchanged until Advance is called or the watch ends.
  virtual void Write(const Response& response) = 0;
  // Called once, as the last call.
  virtual void Finish(const absl::Status& status) = 0;
};

}  // namespace genesis
