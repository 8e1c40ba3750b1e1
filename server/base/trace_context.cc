#include "server/base/trace_context.h"

#include "absl/strings/str_cat.h"
#include "base/files/sha256.h"

namespace genesis {
namespace {

constexpr size_t kTraceDigits = 32;
constexpr size_t kSpanDigits = 16;
constexpr size_t kTraceAt = 3;
constexpr size_t kSpanAt = kTraceAt + kTraceDigits + 1;
constexpr size_t kFlagsAt = kSpanAt + kSpanDigits + 1;
constexpr size_t kHeaderSize = kFlagsAt + 2;

bool IsLowerHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kHeaderSize) return std::nullopt;
  const std::string_view version = header.substr(0, 2);
  if (!IsLowerHex(version) || version == "ff") return std::nullopt;
  // A later version may add fields.
  const bool more = header.size() > kHeaderSize;
  if (more && (version == "00" || header[kHeaderSize] != '-')) return std::nullopt;
  for (const size_t dash : {size_t{2}, kSpanAt - 1, kFlagsAt - 1}) {
    if (header[dash] != '-') return std::nullopt;
  }
  const std::string_view trace = header.substr(kTraceAt, kTraceDigits);
  const std::string_view span = header.substr(kSpanAt, kSpanDigits);
  const std::string_view flags = header.substr(kFlagsAt, 2);
  if (!IsLowerHex(trace) || !IsLowerHex(span) || !IsLowerHex(flags)) return std::nullopt;
  if (IsZero(trace) || IsZero(span)) return std::nullopt;
  const bool sampled = std::string_view("13579bdf").find(flags[1]) != std::string_view::npos;
  return TraceContext{
      .trace_id = std::string(trace), .span_id = std::string(span), .sampled = sampled};
}

TraceContext TraceOf(const training::v1::Job& job) {
  TraceContext trace;
  if (const std::optional<TraceContext> caller = ParseTraceparent(job.traceparent())) {
    trace.trace_id = caller->trace_id;
    trace.parent_id = caller->span_id;
    trace.sampled = caller->sampled;
  } else {
    // Successive jobs with the same ID have different creation times.
    trace.trace_id = Sha256Hex(absl::StrCat("trace ", job.id(), " ", job.create_time().seconds(),
                                            ".", job.create_time().nanos()))
                         .substr(0, kTraceDigits);
  }
  trace.span_id = SpanId(trace, absl::StrCat("job ", job.id()));
  return trace;
}

std::string SpanId(const TraceContext& trace, const std::string& name) {
  return Sha256Hex(absl::StrCat(trace.trace_id, " ", name)).substr(0, kSpanDigits);
}

}  // namespace genesis
