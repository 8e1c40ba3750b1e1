#pragma once

#include <string>
#include <vector>

#include "base/text/json.h"
#include "genesis/training/v1/event.pb.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

// Spans of jobs in the JSON form of OTLP 1.x (opentelemetry.proto.trace.v1.Span): trace and span
// IDs are hexadecimal, times are nanoseconds as decimal strings.

// Returns the spans that a change of the job's state ends. `events` are the events of the job,
// oldest first; the last one is the change.
//
//   genesis.job            from submission to the final state, a child of the caller's span
//   genesis.job.<state>    one for each stay in a state, such as genesis.job.queued, a child of it.
//                          Checkpoints, evaluations, incidents and changes of precision in that
//                          time are its events, at most the last 128, OpenTelemetry's default
std::vector<Json> SpansEndedByLast(const training::v1::Job& job,
                                   const std::vector<training::v1::JobEvent>& events);

// Returns {"key": ..., "value": {"stringValue": ...}}.
Json OtlpAttribute(const std::string& key, const std::string& value);

// Returns the body of an export of spans.
std::string TracesBody(const Json& resource, const std::vector<Json>& spans);

}  // namespace genesis
