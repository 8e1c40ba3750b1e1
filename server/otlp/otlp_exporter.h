#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/steady_time.h"
#include "base/text/json.h"
#include "genesis/training/v1/event.pb.h"
#include "metrics/metrics.h"
#include "server/ledger/job_view.h"

namespace genesis {

// The exporter of spans and metrics to an OpenTelemetry collector, over OTLP/HTTP with JSON.
//
// Spans are created from the durable events, about once a second. While the collector does not
// respond, up to 2048 spans wait; later ones are dropped and counted. Metrics are sent once a
// minute, without retries. Neither delays a job, because only this thread waits for the collector.
//
// Owner: the daemon. Threads: one of its own. Failure: logged once when it starts and once when it
// is over.
class OtlpExporter {
 public:
  // `endpoint` is otlp.endpoint. Spans are created from the events after `cursor`.
  OtlpExporter(const std::string& endpoint, const JobView* view, int64_t cursor, Metrics* metrics);
  ~OtlpExporter() { Stop(); }

  void Start();
  // Sends the waiting spans, for about a second, then ends the thread. Idempotent.
  void Stop();

 private:
  void Loop();
  absl::Time stop_by();
  void CollectSpans();
  // Adds the spans that a change of a job's state or a checkpoint ends.
  void AddSpansOf(const training::v1::JobEvent& event);
  void AddSpansOfChange(const training::v1::Job& job, const training::v1::JobEvent& change);
  void SendSpans();
  void SendMetrics();
  // Returns OK if the collector accepted the body, UNAVAILABLE if it may be sent again.
  absl::Status Post(const std::string& path, std::string body);
  void TellStatus(const absl::Status& status);

  const std::string endpoint_;
  const JobView* const view_;
  Metrics* const metrics_;
  const Json resource_;
  const absl::Time start_;
  // Used by the exporter's thread only.
  int64_t cursor_;
  std::deque<Json> spans_;
  absl::Time next_send_ = absl::InfinitePast();
  absl::Duration pause_ = absl::ZeroDuration();
  absl::Time next_metrics_;
  absl::Status told_;
  std::thread thread_;

  absl::Mutex mutex_;
  SteadyCondition changed_;
  // The end of the last transfer; infinite until Stop is called.
  absl::Time stop_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace genesis
