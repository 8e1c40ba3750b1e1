#pragma once

#include <string>

namespace genesis {

// Why the daemon itself takes a running job off its worker.
enum class StopCause {
  kPreempted,  // A job of higher priority needs the slot.
  kRetired,    // An operator drains the worker.
  kPolicy,     // An operator disabled reduced precision at once.
  kDeadline,   // scheduling.deadline_seconds is over.
  kHung,       // The worker makes no progress.
};

// What decides what becomes of a job when its worker has stopped.
struct StopRequest {
  StopCause cause;
  std::string reason;  // One sentence.
};

}  // namespace genesis
