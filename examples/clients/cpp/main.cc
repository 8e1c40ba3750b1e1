// Trains a small world model on a genesisd, waits for the end of the job, and prints its held-out
// loss and its newest checkpoint:
//
//   client HOST:PORT JOB_ID [TOKEN]
#include <grpcpp/grpcpp.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "genesis/training/v1/training_service.grpc.pb.h"

using namespace genesis::training::v1;  // NOLINT: the client uses many names of the API.

JobSpec Spec() {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model()->set_hidden_size(32);
  spec.mutable_model()->mutable_world_model()->set_latent_size(16);
  spec.mutable_dataset()->mutable_trajectories()->set_path("pendulum.npz");
  spec.mutable_training()->set_max_steps(300);
  spec.mutable_training()->set_batch_size(64);
  spec.mutable_training()->set_seed(7);
  spec.mutable_checkpoint()->set_every_steps(100);
  return spec;
}

bool HasEnded(const Job& job) {
  return job.state() == JOB_STATE_SUCCEEDED || job.state() == JOB_STATE_FAILED ||
         job.state() == JOB_STATE_CANCELLED;
}

// Throws the daemon's error.
void Check(const grpc::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.error_message());
}

Job Run(TrainingService::Stub& daemon, const std::string& id, const std::string& token) {
  const auto authorize = [&token](grpc::ClientContext& context) {
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  };
  TrainRequest train;
  train.set_job_id(id);
  *train.mutable_spec() = Spec();
  TrainResponse accepted;
  grpc::ClientContext context;
  authorize(context);
  Check(daemon.Train(&context, train, &accepted));

  Job job = accepted.job();
  while (!HasEnded(job)) {
    GetJobRequest wait;
    wait.set_job_id(id);
    wait.set_wait_seconds(60);
    GetJobResponse response;
    grpc::ClientContext waiting;
    authorize(waiting);
    Check(daemon.GetJob(&waiting, wait, &response));
    job = response.job();
    std::cout << JobState_Name(job.state()) << ", step " << job.progress().step() << std::endl;
  }
  return job;
}

int main(int argc, char** argv) try {
  if (argc < 3) throw std::runtime_error("usage: client HOST:PORT JOB_ID [TOKEN]");
  const auto daemon =
      TrainingService::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  const Job job = Run(*daemon, argv[2], argc > 3 ? argv[3] : "");
  if (job.state() != JOB_STATE_SUCCEEDED) throw std::runtime_error(job.state_reason());
  std::cout << "held-out loss " << job.evaluation().loss() << ", checkpoint "
            << job.latest_checkpoint().id() << std::endl;
} catch (const std::exception& error) {
  std::cerr << error.what() << std::endl;
  return 1;
}
