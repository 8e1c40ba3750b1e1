// Measures the time from Train to the first finished step on a warm worker. Connects to a running
// daemon:
//   first_step ADDRESS DATASET [RUNS]
// Submits a job RUNS times, each time when a warm worker is idle. Prints the milliseconds of each
// run until WatchJob reports step 1 or later, with minimum, median and maximum.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: the benchmark uses many names of the API.

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "first_step: %s\n", message.c_str());
  std::exit(1);
}

class Client {
 public:
  explicit Client(const std::string& address)
      : stub_(TrainingService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

  void AwaitWarmWorker() {
    for (;;) {
      grpc::ClientContext context;
      StatsResponse stats;
      const grpc::Status status = stub_->Stats(&context, {}, &stats);
      if (!status.ok()) Die(status.error_message());
      if (stats.warm_workers() > 0 && stats.busy_workers() == 0) return;
      absl::SleepFor(absl::Milliseconds(20));
    }
  }

  std::string Train(const std::string& dataset) {
    TrainRequest request;
    request.mutable_spec()->mutable_model()->mutable_world_model();
    request.mutable_spec()->mutable_dataset()->mutable_trajectories()->set_path(dataset);
    request.mutable_spec()->mutable_training()->set_max_steps(20);
    grpc::ClientContext context;
    TrainResponse response;
    const grpc::Status status = stub_->Train(&context, request, &response);
    if (!status.ok()) Die(status.error_message());
    return response.job().id();
  }

  // Watches until the job ends. Returns the time at which the first step was seen.
  absl::Time WatchFirstStep(const std::string& job_id) {
    grpc::ClientContext context;
    WatchJobRequest request;
    request.set_job_id(job_id);
    auto reader = stub_->WatchJob(&context, request);
    absl::Time first_step = absl::InfiniteFuture();
    WatchJobResponse update;
    while (reader->Read(&update)) {
      if (update.job().progress().step() > 0) first_step = std::min(first_step, absl::Now());
    }
    if (update.job().state() != JOB_STATE_SUCCEEDED) Die(update.job().state_reason());
    return first_step;
  }

 private:
  std::unique_ptr<TrainingService::Stub> stub_;
};

int Main(const std::string& address, const std::string& dataset, int runs) {
  Client client(address);
  std::vector<double> milliseconds;
  for (int run = 0; run < runs; ++run) {
    client.AwaitWarmWorker();
    const absl::Time begin = absl::Now();
    const std::string id = client.Train(dataset);
    const double ms = absl::ToDoubleMilliseconds(client.WatchFirstStep(id) - begin);
    std::printf("run %d: %.1f ms\n", run + 1, ms);
    milliseconds.push_back(ms);
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf(
      "Train to first finished step, warm worker, %d runs: min %.1f ms, median %.1f ms, "
      "max %.1f ms\n",
      runs, milliseconds.front(), milliseconds[milliseconds.size() / 2], milliseconds.back());
  return 0;
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  if (argc < 3) genesis::Die("usage: first_step ADDRESS DATASET [RUNS]");
  return genesis::Main(argv[1], argv[2], argc > 3 ? std::max(1, std::atoi(argv[3])) : 11);
}
