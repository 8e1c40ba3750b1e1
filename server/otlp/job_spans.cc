#include "server/otlp/job_spans.h"

#include <google/protobuf/timestamp.pb.h>

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/text/enum_names.h"
#include "base/text/text.h"
#include "base/timestamp.h"
#include "server/base/trace_context.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using google::protobuf::Timestamp;
using training::v1::Job;
using training::v1::JobEvent;
using training::v1::JobState;

constexpr size_t kMaxSpanEvents = 128;
// Numbers of opentelemetry.proto.trace.v1.
constexpr int kSpanKindInternal = 1;
constexpr int kStatusOk = 1;
constexpr int kStatusError = 2;
constexpr int kSampledFlag = 1;

std::string Nanoseconds(const Timestamp& time) {
  constexpr int64_t kPerSecond = 1'000'000'000;
  return absl::StrCat(time.seconds() * kPerSecond + time.nanos());
}

Json IntegerAttribute(const std::string& key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", absl::StrCat(value)}}}};
}

// Returns the span's event; nullopt for an event that spans do not contain.
std::optional<Json> SpanEvent(const JobEvent& event) {
  Json attributes = Json::array();
  std::string name;
  if (event.has_evaluated()) {
    name = "evaluation";
    attributes.push_back(IntegerAttribute("genesis.step", event.evaluated().step()));
  } else if (event.has_incident()) {
    name = "incident";
    attributes.push_back(IntegerAttribute("genesis.step", event.incident().step()));
    attributes.push_back(OtlpAttribute("genesis.incident.rule", event.incident().rule()));
    attributes.push_back(OtlpAttribute("genesis.incident.message", event.incident().message()));
  } else if (event.has_precision_changed()) {
    name = "precision_change";
    const training::v1::PrecisionChange& change = event.precision_changed();
    attributes.push_back(IntegerAttribute("genesis.step", change.step()));
    attributes.push_back(OtlpAttribute("genesis.precision.from", ShortEnumName(change.from())));
    attributes.push_back(OtlpAttribute("genesis.precision.to", ShortEnumName(change.to())));
    attributes.push_back(OtlpAttribute("genesis.precision.reason", change.reason()));
  } else if (event.has_rank_changed()) {
    name = "rank_lost";
    attributes.push_back(IntegerAttribute("genesis.rank", event.rank_changed().rank()));
    attributes.push_back(OtlpAttribute("genesis.rank.reason", event.rank_changed().reason()));
  } else {
    return std::nullopt;
  }
  return Json{{"timeUnixNano", Nanoseconds(event.time())},
              {"name", name},
              {"attributes", std::move(attributes)}};
}

Json Span(const TraceContext& trace, const std::string& name, const std::string& span_id,
          const std::string& parent_id, const Timestamp& begin, const Timestamp& end) {
  Json span = {{"traceId", trace.trace_id}, {"spanId", span_id}};
  if (!parent_id.empty()) span["parentSpanId"] = parent_id;
  span["flags"] = kSampledFlag;
  span["name"] = name;
  span["kind"] = kSpanKindInternal;
  span["startTimeUnixNano"] = Nanoseconds(begin);
  span["endTimeUnixNano"] = Nanoseconds(end);
  return span;
}

Json StateSpan(const Job& job, const TraceContext& trace, const std::vector<JobEvent>& events,
               size_t begin) {
  const JobEvent& entered = events[begin];
  const JobEvent& left = events.back();
  const std::string state = absl::AsciiStrToLower(ShortEnumName(entered.state_changed().to()));
  // The sequence number distinguishes the stays in one state.
  Json span = Span(trace, absl::StrCat("genesis.job.", state),
                   SpanId(trace, absl::StrCat("event ", entered.sequence())), trace.span_id,
                   entered.time(), left.time());
  span["attributes"] = {OtlpAttribute("genesis.job.id", job.id()),
                        OtlpAttribute("genesis.job.reason", entered.state_changed().reason()),
                        OtlpAttribute("genesis.job.end_reason", left.state_changed().reason())};
  std::vector<Json> within;
  for (size_t i = begin + 1; i + 1 < events.size(); ++i) {
    if (std::optional<Json> each = SpanEvent(events[i])) within.push_back(*std::move(each));
  }
  const size_t dropped = within.size() - std::min(within.size(), kMaxSpanEvents);
  span["events"] = std::vector<Json>(within.begin() + static_cast<int64_t>(dropped), within.end());
  if (dropped > 0) span["droppedEventsCount"] = dropped;
  return span;
}

// Returns the span from the start of a stay in RUNNING to its first step; nullopt if there is none.
std::optional<Json> FirstStepSpan(const Job& job, const TraceContext& trace,
                                  const JobEvent& entered, const JobEvent& left,
                                  const std::string& parent_id) {
  if (entered.state_changed().to() != training::v1::JOB_STATE_RUNNING) return std::nullopt;
  const absl::Time time = FromTimestamp(job.first_step_time());
  const bool within = job.has_first_step_time() && time >= FromTimestamp(entered.time()) &&
                      time <= FromTimestamp(left.time());
  if (!within) return std::nullopt;  // The time is that of another attempt.
  Json span = Span(trace, "genesis.job.first_step",
                   SpanId(trace, absl::StrCat("first step ", entered.sequence())), parent_id,
                   entered.time(), job.first_step_time());
  span["attributes"] = {OtlpAttribute("genesis.job.id", job.id())};
  return span;
}

Json JobSpan(const Job& job, const TraceContext& trace, const JobEvent& end) {
  const JobState state = end.state_changed().to();
  Json span =
      Span(trace, "genesis.job", trace.span_id, trace.parent_id, job.create_time(), end.time());
  span["attributes"] = {
      OtlpAttribute("genesis.job.id", job.id()),
      OtlpAttribute("genesis.job.owner", job.owner()),
      OtlpAttribute("genesis.job.state", ShortEnumName(state)),
      IntegerAttribute("genesis.job.steps", job.progress().step()),
      IntegerAttribute("genesis.job.restarts", job.restarts()),
      OtlpAttribute("genesis.job.precision", ShortEnumName(job.precision().mode()))};
  for (const auto& [key, value] : job.labels()) {
    span["attributes"].push_back(OtlpAttribute(absl::StrCat("genesis.job.label.", key), value));
  }
  if (state == training::v1::JOB_STATE_FAILED) {
    span["status"] = {{"code", kStatusError},
                      {"message", OneLine(job.failure().message(), kMaxMessageBytes)}};
  } else if (state == training::v1::JOB_STATE_SUCCEEDED) {
    span["status"] = {{"code", kStatusOk}};
  }
  return span;
}

}  // namespace

Json OtlpAttribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

std::vector<Json> SpansEndedByLast(const Job& job, const std::vector<JobEvent>& events) {
  const TraceContext trace = TraceOf(job);
  std::vector<Json> spans;
  if (!trace.sampled || events.empty()) return spans;
  for (size_t i = events.size() - 1; i-- > 0;) {
    if (!events[i].has_state_changed()) continue;
    spans.push_back(StateSpan(job, trace, events, i));
    std::optional<Json> first_step =
        FirstStepSpan(job, trace, events[i], events.back(), spans.back()["spanId"]);
    if (first_step) spans.push_back(*std::move(first_step));
    break;
  }
  if (IsFinal(events.back().state_changed().to())) {
    spans.push_back(JobSpan(job, trace, events.back()));
  }
  return spans;
}

std::vector<Json> SpansOfCheckpoint(const Job& job, const JobEvent& event) {
  const TraceContext trace = TraceOf(job);
  if (!trace.sampled) return {};
  const training::v1::Checkpoint& checkpoint = event.checkpoint_written();
  const absl::Time begin = FromTimestamp(event.time()) - absl::Seconds(checkpoint.write_seconds());
  Json span =
      Span(trace, "genesis.job.checkpoint", SpanId(trace, absl::StrCat("event ", event.sequence())),
           trace.span_id, ToTimestamp(begin), event.time());
  span["attributes"] = {OtlpAttribute("genesis.job.id", job.id()),
                        OtlpAttribute("genesis.checkpoint.id", checkpoint.id()),
                        IntegerAttribute("genesis.step", checkpoint.step()),
                        IntegerAttribute("genesis.checkpoint.size_bytes", checkpoint.size_bytes())};
  return {std::move(span)};
}

std::string TracesBody(const Json& resource, const std::vector<Json>& spans) {
  const Json body = {{"resourceSpans",
                      {{{"resource", resource},
                        {"scopeSpans", {{{"scope", {{"name", "genesis"}}}, {"spans", spans}}}}}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace genesis
