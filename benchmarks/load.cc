// Calls one method at a steady rate, each call at its scheduled time even if earlier calls are
// still pending (an open loop: a stalled server is charged for every scheduled call), and prints
// the latencies as one line of JSON.
//   load ADDRESS METHOD RATE SECONDS JOB_ID SPEC_FILE
//   load ADDRESS save JOB_ID SPEC_FILE JOB_FILE
// METHOD: GetJob (of JOB_ID), or Train (JOB_ID is the prefix of new IDs; SPEC_FILE is a
// serialized training.v1.JobSpec). save writes a job of the daemon and its specification to
// files for the other calls.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "genesis/training/v1/training_service.grpc.pb.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: the benchmark uses many names of the API.

// Latencies of calls, measured from their scheduled times.
class Latencies {
 public:
  void Add(absl::Duration latency, bool ok) {
    const std::lock_guard lock(mutex_);
    milliseconds_.push_back(absl::ToDoubleMilliseconds(latency));
    if (!ok) ++failed_;
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return milliseconds_.size();
  }
  void Print() {
    const std::lock_guard lock(mutex_);
    std::sort(milliseconds_.begin(), milliseconds_.end());
    const auto at = [&](double share) {
      const auto rank = static_cast<size_t>(share * static_cast<double>(milliseconds_.size()));
      return milliseconds_[std::min(rank, milliseconds_.size() - 1)];
    };
    std::printf(
        "{\"calls\": %zu, \"failed\": %d, \"p50_ms\": %.4f, \"p90_ms\": %.4f, "
        "\"p99_ms\": %.4f, \"max_ms\": %.4f}\n",
        milliseconds_.size(), failed_, at(0.5), at(0.9), at(0.99), milliseconds_.back());
  }

 private:
  std::mutex mutex_;
  std::vector<double> milliseconds_;
  int failed_ = 0;
};

template <typename Request, typename Response>
struct Call {
  grpc::ClientContext context;
  Request request;
  Response response;
};

class Load {
 public:
  Load(const std::string& address, std::string job_id, JobSpec spec)
      : stub_(TrainingService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        job_id_(std::move(job_id)),
        spec_(std::move(spec)) {}

  void Run(const std::string& method, int rate, int seconds) {
    const size_t calls = static_cast<size_t>(rate) * static_cast<size_t>(seconds);
    const absl::Duration period = absl::Seconds(1) / rate;
    const absl::Time begin = absl::Now() + absl::Milliseconds(100);
    for (size_t i = 0; i < calls; ++i) {
      const absl::Time due = begin + period * static_cast<int64_t>(i);
      absl::SleepFor(due - absl::Now());
      method == "GetJob" ? GetJob(due) : Train(due, i);
    }
    while (latencies_.size() < calls) absl::SleepFor(absl::Milliseconds(5));
    latencies_.Print();
  }

 private:
  void GetJob(absl::Time due) {
    auto call = std::make_shared<Call<GetJobRequest, GetJobResponse>>();
    call->request.set_job_id(job_id_);
    stub_->async()->GetJob(&call->context, &call->request, &call->response,
                           [this, call, due](const grpc::Status& status) {
                             latencies_.Add(absl::Now() - due, status.ok());
                           });
  }

  void Train(absl::Time due, size_t number) {
    auto call = std::make_shared<Call<TrainRequest, TrainResponse>>();
    call->request.set_job_id(absl::StrCat(job_id_, "-", number));
    *call->request.mutable_spec() = spec_;
    stub_->async()->Train(&call->context, &call->request, &call->response,
                          [this, call, due](const grpc::Status& status) {
                            latencies_.Add(absl::Now() - due, status.ok());
                          });
  }

  const std::unique_ptr<TrainingService::Stub> stub_;
  const std::string job_id_;
  const JobSpec spec_;
  Latencies latencies_;
};

// Saves the job and its specification. Returns 0 if both files were written.
int Save(const std::string& address, const std::string& job_id, const std::string& spec_file,
         const std::string& job_file) {
  const auto stub =
      TrainingService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  GetJobRequest request;
  request.set_job_id(job_id);
  GetJobResponse response;
  if (!stub->GetJob(&context, request, &response).ok()) return 1;
  std::ofstream spec(spec_file, std::ios::binary);
  std::ofstream job(job_file, std::ios::binary);
  const bool written =
      response.job().spec().SerializeToOstream(&spec) && response.job().SerializeToOstream(&job);
  return written ? 0 : 1;
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  if (argc == 6 && std::string(argv[2]) == "save") {
    return genesis::Save(argv[1], argv[3], argv[4], argv[5]);
  }
  if (argc != 7) {
    std::fprintf(stderr, "usage: load ADDRESS METHOD RATE SECONDS JOB_ID SPEC_FILE\n");
    return 2;
  }
  genesis::training::v1::JobSpec spec;
  std::ifstream file(argv[6], std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  spec.ParseFromString(bytes.str());
  genesis::Load load(argv[1], argv[5], spec);
  load.Run(argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
  return 0;
}
