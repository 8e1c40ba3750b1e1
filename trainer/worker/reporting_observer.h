#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "curves/curve_writer.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/worker/event_sender.h"

namespace genesis {

// An observer that reports a run to the daemon, as events of its job and claim. Rank 0 reports the
// job and writes its curves; other ranks report only themselves.
//
// Owner: the link to the daemon. Threads: the run's; any may call SendSection and OnAbandoned.
class ReportingObserver : public RunObserver {
 public:
  // Sends weights to the daemon. Returns an error unless the daemon accepted them.
  using SendWeights =
      std::function<absl::Status(const training::v1::PublishedWeights&, const MemoryFile&)>;

  // `start` and `sender` outlive the observer.
  ReportingObserver(const training::v1::StartJob& start, EventSender& sender, SendWeights weights)
      : start_(start), sender_(sender), send_weights_(std::move(weights)) {}

  void OnStarted(const training::v1::Started& started) override;
  void OnStep(const StepRecord& record) override;
  void OnSteps(const training::v1::Steps& steps) override;
  void OnCheckpoint(const training::v1::CheckpointWritten& written) override;
  void OnPrecisionChanged(const training::v1::PrecisionChange& change) override;
  void OnIncident(const training::v1::Incident& incident) override;
  void OnEvaluated(const training::v1::Evaluation& evaluation) override;
  void OnSection(training::v1::Section section) override;
  void OnWaiting(const std::string& reason) override;
  void OnLog(const std::string& line) override;
  absl::Status OnWeights(const training::v1::PublishedWeights& weights,
                         const MemoryFile& file) override {
    return send_weights_(weights, file);
  }
  // Adds the last log lines to a failure.
  void OnFinished(training::v1::Finished finished);

  // Sends the current section. Called again after a reconnect, because the daemon may lack it.
  void SendSection();
  // Reports the end of a run that cannot do so itself because it waits for a rank that is gone.
  void OnAbandoned();

 private:
  bool first() const { return start_.rank().rank() == 0; }
  void Send(const std::function<void(training::v1::AttachRequest&)>& fill);
  void SendLine(const std::string& line);

  const training::v1::StartJob& start_;
  EventSender& sender_;
  const SendWeights send_weights_;
  std::optional<CurveWriter> curves_;  // Set once rank 0 has started.
  std::deque<std::string> log_tail_;
  absl::Time next_steps_ = absl::InfinitePast();  // Used by ranks other than rank 0.
  std::atomic<training::v1::Section> section_{training::v1::SECTION_SETUP};
};

}  // namespace genesis
