// The cost of telemetry in the step loop of a worker: step_telemetry [STEPS]
// Passes the metrics of steps to the reporter as RunTraining does. For every 100 ms of training, it
// sends a report to the sender, whose thread writes it to a stream. Steps are assumed to take 2 ms,
// so a report covers 50 of them. Then it passes the metrics of steps to the observer that records
// curves, as the training thread does: in a row, and after work that replaces the contents of the
// caches. Prints the nanoseconds per step in each round as one line of JSON: {"reporter alone":
// [...], "reporter and sender": [...], "curves, warm": [...], "curves, cold": [...]}.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/temp_dir.h"
#include "trainer/run/step_reporter.h"
#include "trainer/worker/event_sender.h"
#include "trainer/worker/reporting_observer.h"

namespace genesis {
namespace {

using Clock = std::chrono::steady_clock;
using training::v1::AttachRequest;

constexpr std::chrono::milliseconds kStep{2};
constexpr int kRounds = 11;

// Turns each report into an event of the sender, as the worker's observer does.
class SendingObserver final : public RunObserver {
 public:
  explicit SendingObserver(EventSender* sender) : sender_(sender) {}
  void OnStarted(const training::v1::Started&) override {}
  void OnSteps(const training::v1::Steps& steps) override {
    if (sender_ == nullptr) return;
    AttachRequest event;
    event.set_job_id("job-a097aa3e16c4");
    event.set_claim(1);
    *event.mutable_steps() = steps;
    sender_->Enqueue(std::move(event));
  }
  void OnCheckpoint(const training::v1::CheckpointWritten&) override {}
  void OnLog(const std::string&) override {}

 private:
  EventSender* const sender_;
};

StepRecord RecordOf(int64_t step) {
  return {.step = step,
          .loss = 1.0 / static_cast<double>(step),
          .grad_norm = 1.5,
          .loss_scale = 65536,
          .learning_rate = 1e-3,
          .mode = training::v1::PRECISION_MODE_MIXED_FP16};
}

double NanosecondsPerStep(SendingObserver& observer, int64_t steps) {
  StepReporter::Options options;
  options.samples_per_step = 128;
  Clock::time_point training_time;
  // The duration of steps is simulated. The real clock is read too, because its cost counts.
  options.clock = [&training_time] {
    static std::atomic<Clock::rep> read;
    read.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    return training_time;
  };
  StepReporter reporter(observer, training::v1::Progress(), options);
  const Clock::time_point begin = Clock::now();
  for (int64_t step = 1; step <= steps; ++step) {
    training_time += kStep;
    reporter.Add(RecordOf(step), 65536, 0.5, 0.002);
  }
  const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
  return taken.count() / static_cast<double>(steps);
}

// Returns the nanoseconds per step in each round, as "[35.1, 35.3]".
std::string Rounds(SendingObserver& observer, int64_t steps) {
  std::vector<double> rounds(kRounds);
  for (double& round : rounds) round = NanosecondsPerStep(observer, steps);
  return absl::StrCat("[", absl::StrJoin(rounds, ", "), "]");
}

// Returns the nanoseconds of a step's curves in each round, a second of training with 1,000 steps.
// The files are written between the rounds. If `work` is not empty, it is read before each step.
std::string CurveRounds(EventSender& sender, const std::string& folder, std::vector<char> work) {
  constexpr int64_t kSteps = 1000;
  training::v1::StartJob start;
  start.set_job_id("job-a097aa3e16c4");
  start.set_checkpoint_dir(folder);
  ReportingObserver observer(start, sender, [](const auto&...) { return absl::OkStatus(); });
  observer.OnStarted(training::v1::Started());
  volatile char read = 0;
  const auto measure = [&](const auto& body) {
    std::chrono::duration<double, std::nano> taken{0};
    for (int64_t step = 1; step <= kSteps; ++step) {
      for (size_t i = 0; i < work.size(); i += 64) read = read + work[i];
      const Clock::time_point begin = Clock::now();
      body(step);
      taken += Clock::now() - begin;
    }
    return taken.count() / kSteps;
  };
  std::vector<double> rounds(kRounds);
  int64_t first = 0;
  for (double& round : rounds) {
    const double with = measure([&](int64_t step) { observer.OnStep(RecordOf(first + step)); });
    const double clock = measure([](int64_t) {});
    round = with - clock;
    first += kSteps;
    observer.OnCheckpoint(training::v1::CheckpointWritten());
  }
  return absl::StrCat("[", absl::StrJoin(rounds, ", "), "]");
}

int Main(int64_t steps) {
  SendingObserver alone(nullptr);
  const std::string reporter = Rounds(alone, steps);
  EventSender sender;
  std::atomic<int64_t> sent{0};
  sender.Attach([&sent](const AttachRequest& event) {
    sent += event.steps().new_steps();
    return true;
  });
  SendingObserver sending(&sender);
  const std::string both = Rounds(sending, steps);
  sender.Drain();
  constexpr size_t kCacheBytes = size_t{8} << 20;
  const TempDir folder;
  const std::string warm = CurveRounds(sender, folder.path(), {});
  const std::string cold = CurveRounds(sender, folder.path(), std::vector<char>(kCacheBytes, 1));
  std::printf(
      "{\"reporter alone\": %s, \"reporter and sender\": %s, \"curves, warm\": %s, "
      "\"curves, cold\": %s}\n",
      reporter.c_str(), both.c_str(), warm.c_str(), cold.c_str());
  if (sent > 0) return 0;
  std::fprintf(stderr, "step_telemetry: nothing was sent\n");
  return 1;
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  return genesis::Main(argc > 1 ? std::max(1000, std::atoi(argv[1])) : 500000);
}
