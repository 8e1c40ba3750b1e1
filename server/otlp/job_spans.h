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
//                          Evaluations, incidents, changes of precision and lost ranks in that time
//                          are its events, at most the last 128, OpenTelemetry's default
//   genesis.job.first_step from the start of genesis.job.running, its parent, to the first step
std::vector<Json> SpansEndedByLast(const training::v1::Job& job,
                                   const std::vector<training::v1::JobEvent>& events);

// Returns the span of a written checkpoint, genesis.job.checkpoint, from the snapshot of the state
// to the durable file, a child of genesis.job; empty if the trace is not sampled.
std::vector<Json> SpansOfCheckpoint(const training::v1::Job& job,
                                    const training::v1::JobEvent& event);

// Returns {"key": ..., "value": {"stringValue": ...}}.
Json OtlpAttribute(const std::string& key, const std::string& value);

// Returns the body of an export of spans.
std::string TracesBody(const Json& resource, const std::vector<Json>& spans);

}  // namespace genesis
