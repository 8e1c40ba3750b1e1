#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "genesis/training/v1/job.pb.h"

namespace genesis {

// The position of an operation in a distributed trace (W3C Trace Context, level 1).
struct TraceContext {
  std::string trace_id;        // 32 lower-case hexadecimal digits, not all zero.
  std::string span_id;         // 16 lower-case hexadecimal digits.
  std::string parent_id = {};  // Span of the caller; empty if the trace begins here.
  bool sampled = true;         // False if the caller decided not to record the trace.
};

// Parses a `traceparent` header, "00-<trace-id>-<parent-id>-<flags>". The result's span_id is the
// parent-id. As the standard asks, a malformed header is ignored: nullopt.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

// Returns the trace of a job and the span of its whole life. The trace is that of the Train call if
// it had one; otherwise it begins with the job. Both IDs follow from the record of the job, so that
// they are the same after a restart.
TraceContext TraceOf(const training::v1::Job& job);

// Returns the ID of the span `name` in `trace`. It is always the same for the same trace and name.
std::string SpanId(const TraceContext& trace, const std::string& name);

}  // namespace genesis
