#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/worker/event_sender.h"

namespace genesis {

// A run told to the daemon, as events of its job and claim. Rank 0 speaks for the job; another rank
// tells of itself alone.
//
// Owner: the link to the daemon. Threads: the run's; SendSection and OnAbandoned are for any.
class ReportingObserver : public RunObserver {
 public:
  // Both outlive it.
  ReportingObserver(const training::v1::StartJob& start, EventSender& sender)
      : start_(start), sender_(sender) {}

  void OnStarted(const training::v1::Started& started) override;
  void OnSteps(const training::v1::Steps& steps) override;
  void OnCheckpoint(const training::v1::CheckpointWritten& written) override;
  void OnPrecisionChanged(const training::v1::PrecisionChange& change) override;
  void OnIncident(const training::v1::Incident& incident) override;
  void OnEvaluated(const training::v1::Evaluation& evaluation) override;
  void OnSection(training::v1::Section section) override;
  void OnLog(const std::string& line) override;
  // A failure takes the last log lines along, for whoever asks why.
  void OnFinished(training::v1::Finished finished);

  // Also when the daemon is back and does not know.
  void SendSection();
  // The run cannot tell its end, for it waits for a rank that is gone.
  void OnAbandoned();

 private:
  bool first() const { return start_.rank().rank() == 0; }
  void Send(const std::function<void(training::v1::AttachRequest&)>& fill);

  const training::v1::StartJob& start_;
  EventSender& sender_;
  std::deque<std::string> log_tail_;
  absl::Time next_steps_ = absl::InfinitePast();  // Of a rank that is not the first.
  std::atomic<training::v1::Section> section_{training::v1::SECTION_SETUP};
};

}  // namespace genesis
