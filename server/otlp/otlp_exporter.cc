#include "server/otlp/otlp_exporter.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/local_address.h"
#include "base/text/text.h"
#include "base/version.h"
#include "server/base/http_transfer.h"
#include "server/otlp/job_spans.h"
#include "server/otlp/otlp_metrics.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::JobEvent;

constexpr size_t kMaxWaitingSpans = 2048;
constexpr size_t kMaxSpansOfPost = 512;
constexpr int64_t kEventsOfTurn = 256;
constexpr absl::Duration kTurn = absl::Seconds(1);
constexpr absl::Duration kMetricsInterval = absl::Minutes(1);
constexpr absl::Duration kLongestPause = absl::Minutes(1);
constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr absl::Duration kStopGrace = absl::Seconds(1);

// Returns the resource, with names of OpenTelemetry's semantic conventions.
Json MakeResource() {
  return {{"attributes",
           {OtlpAttribute("service.name", "genesisd"), OtlpAttribute("service.version", kVersion),
            OtlpAttribute("service.instance.id", absl::StrCat(HostName(), ":", getpid())),
            OtlpAttribute("host.name", HostName())}}};
}

constexpr size_t kMaxReply = size_t{64} << 10U;

bool MayBeSentAgain(long status) {
  constexpr long kTooManyRequests = 429;
  constexpr long kBadGateway = 502;
  constexpr long kServiceUnavailable = 503;
  constexpr long kGatewayTimeout = 504;
  return status == kTooManyRequests || status == kBadGateway || status == kServiceUnavailable ||
         status == kGatewayTimeout;
}

}  // namespace

OtlpExporter::OtlpExporter(const std::string& endpoint, const JobView* view, int64_t cursor,
                           Metrics* metrics)
    : endpoint_(endpoint.substr(0, endpoint.find_last_not_of('/') + 1)),
      view_(view),
      metrics_(metrics),
      resource_(MakeResource()),
      start_(absl::Now()),
      cursor_(cursor) {}

void OtlpExporter::Start() {
  next_metrics_ = SteadyNow();
  thread_ = std::thread([this] { Loop(); });
}

void OtlpExporter::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_by_ = std::min(stop_by_, SteadyNow() + kStopGrace);
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Time OtlpExporter::stop_by() {
  absl::MutexLock lock(&mutex_);
  return stop_by_;
}

void OtlpExporter::Loop() {
  for (bool stopping = false; !stopping;) {
    {
      absl::MutexLock lock(&mutex_);
      stopping = changed_.WaitUntil(
          mutex_, SteadyNow() + kTurn,
          [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stop_by_ != absl::InfiniteFuture(); });
    }
    CollectSpans();
    if (stopping || SteadyNow() >= next_send_) SendSpans();
    if (SteadyNow() >= next_metrics_) {
      next_metrics_ = SteadyNow() + kMetricsInterval;
      SendMetrics();
    }
  }
  if (!spans_.empty()) metrics_->OtlpDropped("traces", static_cast<int64_t>(spans_.size()));
}

void OtlpExporter::CollectSpans() {
  if (view_->LastSequence() == cursor_) return;
  const absl::StatusOr<EventPage> page =
      view_->EventsAfter({.kinds = {"state_changed", "checkpoint_written"}}, cursor_, kEventsOfTurn,
                         /*skip_dropped=*/true);
  if (!page.ok()) return TellStatus(page.status());
  cursor_ = page->cursor;
  for (const JobEvent& event : page->events) AddSpansOf(event);
  if (spans_.size() <= kMaxWaitingSpans) return;
  metrics_->OtlpDropped("traces", static_cast<int64_t>(spans_.size() - kMaxWaitingSpans));
  spans_.resize(kMaxWaitingSpans);
}

void OtlpExporter::AddSpansOf(const JobEvent& event) {
  const absl::StatusOr<std::shared_ptr<const JobSnapshot>> job = view_->Snapshot(event.job_id());
  if (!job.ok() || *job == nullptr) return;  // The job was deleted.
  if (event.has_state_changed()) return AddSpansOfChange((*job)->job, event);
  for (Json& span : SpansOfCheckpoint((*job)->job, event)) spans_.push_back(std::move(span));
}

void OtlpExporter::AddSpansOfChange(const training::v1::Job& job, const JobEvent& change) {
  std::vector<JobEvent> events;
  int64_t after = 0;
  for (bool at_end = false; !at_end;) {
    absl::StatusOr<EventPage> page = view_->EventsAfter({.job_id = change.job_id()}, after,
                                                        kEventsOfTurn, /*skip_dropped=*/true);
    if (!page.ok()) return TellStatus(page.status());
    for (JobEvent& each : page->events) {
      // Deletion events belong to earlier jobs with this ID.
      if (each.has_deleted()) events.clear();
      if (!each.has_deleted() && each.sequence() <= change.sequence()) {
        events.push_back(std::move(each));
      }
    }
    after = page->cursor;
    at_end = page->at_end || after >= change.sequence();
  }
  if (events.empty() || events.back().sequence() != change.sequence()) return;
  for (Json& span : SpansEndedByLast(job, events)) spans_.push_back(std::move(span));
}

void OtlpExporter::SendSpans() {
  while (!spans_.empty()) {
    const size_t count = std::min(spans_.size(), kMaxSpansOfPost);
    const auto end = spans_.begin() + static_cast<int64_t>(count);
    const absl::Status sent =
        Post("/v1/traces", TracesBody(resource_, std::vector<Json>(spans_.begin(), end)));
    TellStatus(sent);
    if (absl::IsUnavailable(sent)) {
      pause_ = std::min(std::max(2 * pause_, kTurn), kLongestPause);
      next_send_ = SteadyNow() + pause_;
      return;
    }
    if (!sent.ok()) metrics_->OtlpDropped("traces", static_cast<int64_t>(count));
    pause_ = absl::ZeroDuration();
    spans_.erase(spans_.begin(), end);
  }
}

void OtlpExporter::SendMetrics() {
  const absl::Status sent =
      Post("/v1/metrics", MetricsBody(resource_, metrics_->Collect(), start_, absl::Now()));
  TellStatus(sent);
  if (!sent.ok()) metrics_->OtlpDropped("metrics", 1);
}

absl::Status OtlpExporter::Post(const std::string& path, std::string body) {
  HttpTransfer transfer(kMaxReply);
  if (transfer.handle() == nullptr) return absl::InternalError("libcurl could not be initialized");
  const std::string url = endpoint_ + path;
  transfer.Set(CURLOPT_URL, url.c_str());
  transfer.SetBody(std::move(body), "application/json");
  transfer.AbortIf(
      [this, end = SteadyNow() + kTimeout] { return SteadyNow() >= std::min(end, stop_by()); });
  const CURLcode code = transfer.Perform();
  const std::string where = absl::StrCat("the collector at ", url);
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    return absl::UnavailableError(
        absl::StrCat(where, " does not answer within ", absl::FormatDuration(kTimeout)));
  }
  if (transfer.TooLarge()) {
    return absl::UnavailableError(
        absl::StrCat(where, " sends an answer of more than ", kMaxReply, " bytes"));
  }
  if (code != CURLE_OK) {
    return absl::UnavailableError(absl::StrCat(where, ": ", transfer.ErrorText(code)));
  }
  const long status = transfer.Status();
  constexpr long kOk = 200;
  constexpr long kFirstError = 300;
  if (status >= kOk && status < kFirstError) return absl::OkStatus();
  const std::string what = absl::StrCat(where, " answers with HTTP status ", status);
  return MayBeSentAgain(status) ? absl::UnavailableError(what) : absl::InvalidArgumentError(what);
}

void OtlpExporter::TellStatus(const absl::Status& status) {
  if (status.code() == told_.code()) return;
  if (status.ok()) {
    spdlog::info("spans and metrics are exported again");
  } else {
    spdlog::warn("spans and metrics are not exported, which hurts no job: {}; check otlp.endpoint",
                 std::string(status.message()));
  }
  told_ = status;
}

}  // namespace genesis
