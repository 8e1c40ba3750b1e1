// The hot paths of a running job, as a program whose instructions and allocations are counted:
// hot_paths PATH TIMES. Nothing waits or depends on time, so equal builds give equal counts.
//   step      a finished step in a worker: accumulated, and every 50th time reported and serialized
//   schedule  the order of 100 waiting jobs of 10 owners, and the victim among 8 running ones
//   get_job   a GetJob with 20 jobs in the queue: admitted, read, serialized, counted
//   scrape    a page of metrics
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "metrics/metrics.h"
#include "server/api/api_gate.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/scheduler.h"
#include "server/workers/worker_pool.h"
#include "tests/temp_dir.h"
#include "trainer/run/step_reporter.h"
#include "trainer/worker/event_sender.h"

namespace genesis {
namespace {

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "hot_paths: %s\n", message.c_str());
  std::exit(1);
}

// Keeps the compiler from optimizing the result away.
void Use(size_t size) {
  static volatile size_t used = 0;
  used = used + size;
}

class SerializingObserver final : public RunObserver {
 public:
  void OnStarted(const training::v1::Started&) override {}
  void OnSteps(const training::v1::Steps& steps) override {
    training::v1::AttachRequest event;
    event.set_job_id("job-a097aa3e16c4");
    event.set_claim(1);
    *event.mutable_steps() = steps;
    Use(event.SerializeAsString().size());
  }
  void OnCheckpoint(const training::v1::CheckpointWritten&) override {}
  void OnLog(const std::string&) override {}
};

void Step(int times) {
  SerializingObserver observer;
  StepReporter::Options options;
  options.samples_per_step = 128;
  std::chrono::steady_clock::time_point now;
  options.clock = [&now] { return now; };
  StepReporter reporter(observer, training::v1::Progress(), options);
  for (int step = 1; step <= times; ++step) {
    now += std::chrono::milliseconds(2);
    reporter.Add({.step = step,
                  .loss = 1.0 / step,
                  .grad_norm = 1.5,
                  .loss_scale = 65536,
                  .learning_rate = 1e-3,
                  .mode = training::v1::PRECISION_MODE_MIXED_FP16},
                 65536, 0.5, 0.002);
  }
}

void Schedule(int times) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  std::vector<WaitingJob> waiting;
  for (int i = 0; i < 100; ++i) {
    waiting.push_back({absl::StrCat("job-", i), i % 3, absl::StrCat("owner-", i % 10), i});
  }
  std::vector<HoldingJob> holding;
  for (int i = 0; i < 8; ++i) {
    holding.push_back({absl::StrCat("running-", i), i % 3, absl::StrCat("owner-", i % 4),
                       now - absl::Seconds(i), std::nullopt});
  }
  OwnerUsage usage;
  usage.Add("owner-1", 100, now);
  for (int i = 0; i < times; ++i) {
    Use(QueueOrder(waiting, holding, usage, now).size());
    Use(ChooseVictims(2, 1, holding).size());
  }
}

void GetJob(int times) {
  const TempDir folder;
  absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(folder.path());
  if (!store.ok()) Die(store.status().ToString());
  {
    EventHub hub;
    JobTable table(store->get(), &hub);
    for (int i = 0; i < 20; ++i) {
      training::v1::Job job;
      job.set_id(absl::StrCat("job-", i));
      job.set_state(training::v1::JOB_STATE_QUEUED);
      job.set_owner("ann");
      job.mutable_spec()->mutable_model()->mutable_world_model()->set_hidden_size(256);
      job.mutable_create_time()->set_seconds(1'700'000'000);
      table.Insert(std::move(job));
    }
    if (const absl::Status status = table.Commit(); !status.ok()) Die(status.ToString());
  }
  WorkerPool pool{WorkerPool::Options{}};
  Metrics metrics("stable", kVersion);
  JobManager manager({}, store->get(), &pool, &metrics);
  if (const absl::Status status = manager.Recover(); !status.ok()) Die(status.ToString());
  const OpenAuthenticator everybody;
  const ApiGate gate(&everybody, nullptr, &metrics);
  const MethodRow& method = *FindMethod("GetJob");
  for (int i = 0; i < times; ++i) {
    const ApiCall call(&gate, method, "grpc", {});
    const absl::StatusOr<training::v1::Job> job = manager.queries().Get({}, "job-7");
    if (!job.ok() || job->queue_position() == 0) Die("a job was not found in the queue");
    Use(job->SerializeAsString().size());
    call.Done("job-7", job.status());
  }
}

void Scrape(int times) {
  Metrics metrics("stable", kVersion);
  metrics.Request("grpc", "GetJob", "OK");
  for (int i = 0; i < times; ++i) Use(metrics.Render(MetricsFormat::kText).size());
}

int Main(int count, char** words) {
  const std::map<std::string, std::function<void(int)>> paths = {
      {"step", Step}, {"schedule", Schedule}, {"get_job", GetJob}, {"scrape", Scrape}};
  const auto path = count == 3 ? paths.find(words[1]) : paths.end();
  const int times = count == 3 ? std::atoi(words[2]) : 0;
  if (path == paths.end() || times < 1) Die("usage: hot_paths step|schedule|get_job|scrape TIMES");
  path->second(times);
  return 0;
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) { return genesis::Main(argc, argv); }
