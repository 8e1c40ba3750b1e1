#include "trainer/worker/reporting_observer.h"

#include <sys/resource.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "base/text/text.h"
#include "curves/curve_folder.h"
#include "trainer/worker/error_line.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Finished;

// Maximum number of lines in Failure.log_tail.
constexpr size_t kLogTailLines = 50;
constexpr size_t kMaxLoggedBytes = size_t{64} * 1024;
// Minimum time between reports of a rank other than rank 0; those in between are dropped.
constexpr absl::Duration kRankStepsPause = absl::Seconds(1);

}  // namespace

void ReportingObserver::OnStarted(const training::v1::Started& started) {
  if (first()) {
    curves_.emplace(CurveFolder(start_.checkpoint_dir(), start_.job_id()), start_.claim(),
                    [this](const absl::Status& fault) {
                      SendLine(absl::StrCat("steps are missing in the curves, training goes on: ",
                                            fault.message()));
                    });
  }
  Send([&](AttachRequest& event) { *event.mutable_started() = started; });
}

void ReportingObserver::OnStep(const StepRecord& record) {
  if (!curves_) return;
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  CurveStep step{.step = record.step,
                 .samples = record.samples,
                 .time_ms = absl::ToUnixMillis(absl::Now()),
                 .seconds = record.training_seconds,
                 .mode = static_cast<uint8_t>(record.mode),
                 .skipped = record.skipped};
  const auto put = [&step](CurveMetric metric, double value) {
    step.metrics[static_cast<size_t>(metric)] = static_cast<float>(value);
  };
  put(CurveMetric::kLoss, record.loss);
  put(CurveMetric::kLossScale, record.loss_scale);
  put(CurveMetric::kGradNorm, record.grad_norm);
  put(CurveMetric::kLearningRate, record.learning_rate);
  put(CurveMetric::kStepSeconds, record.step_seconds);
  put(CurveMetric::kMemoryBytes,
      record.memory_bytes ? static_cast<double>(*record.memory_bytes) : kUnknown);
  curves_->Add(step);
}

void ReportingObserver::OnSteps(const training::v1::Steps& steps) {
  if (!first()) {
    if (SteadyNow() < next_steps_) return;
    next_steps_ = SteadyNow() + kRankStepsPause;
  }
  Send([&](AttachRequest& event) { *event.mutable_steps() = steps; });
}

void ReportingObserver::OnCheckpoint(const training::v1::CheckpointWritten& written) {
  if (curves_) curves_->Flush();
  Send([&](AttachRequest& event) { *event.mutable_checkpoint_written() = written; });
}

void ReportingObserver::OnPrecisionChanged(const training::v1::PrecisionChange& change) {
  if (!first()) return;
  Send([&](AttachRequest& event) { *event.mutable_precision_changed() = change; });
}

void ReportingObserver::OnIncident(const training::v1::Incident& incident) {
  if (!first()) return;
  Send([&](AttachRequest& event) { *event.mutable_incident() = incident; });
}

void ReportingObserver::OnEvaluated(const training::v1::Evaluation& evaluation) {
  if (!first()) return;
  Send([&](AttachRequest& event) { *event.mutable_evaluated() = evaluation; });
}

void ReportingObserver::OnSection(training::v1::Section section) {
  section_ = section;
  SendSection();
}

// Every rank reports its waits, so that the daemon does not take a waiting rank for a hung one.
void ReportingObserver::OnWaiting(const std::string& reason) {
  Send([&](AttachRequest& event) { event.mutable_waiting_for_data()->set_reason(reason); });
}

void ReportingObserver::OnLog(const std::string& line) {
  // The worker's own log keeps more than is sent.
  PrintErrorLine(BoundedText(line, kMaxLoggedBytes));
  log_tail_.push_back(OneLine(line, kMaxLineBytes));
  if (log_tail_.size() > kLogTailLines) log_tail_.pop_front();
  SendLine(line);
}

void ReportingObserver::SendLine(const std::string& line) {
  Send([&](AttachRequest& event) { event.mutable_log_line()->set_text(line); });
}

void ReportingObserver::OnFinished(Finished finished) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  curves_.reset();  // Writes the last steps.
  finished.set_peak_memory_bytes(int64_t{usage.ru_maxrss} * 1024);
  if (finished.has_failure()) {
    for (const std::string& line : log_tail_) finished.mutable_failure()->add_log_tail(line);
  }
  Send([&](AttachRequest& event) { *event.mutable_finished() = finished; });
}

void ReportingObserver::SendSection() {
  Send([&](AttachRequest& event) { event.mutable_section_entered()->set_section(section_); });
}

void ReportingObserver::OnAbandoned() {
  Finished finished;
  finished.set_outcome(Finished::OUTCOME_FAILED);
  finished.mutable_failure()->set_cause(training::v1::FAILURE_CAUSE_WORKER_EXIT);
  finished.mutable_failure()->set_message("it waits for a rank that is gone");
  Send([&](AttachRequest& event) { *event.mutable_finished() = finished; });
}

void ReportingObserver::Send(const std::function<void(AttachRequest&)>& fill) {
  AttachRequest event;
  event.set_job_id(start_.job_id());
  event.set_claim(start_.claim());
  fill(event);
  sender_.Enqueue(std::move(event));
}

}  // namespace genesis
