// The lower bound of an RPC's cost: a bare gRPC C++ callback server that answers GetJob and Train
// with a fixed message. Prints its port, then serves until its standard input is closed.
//   echo_server JOB_FILE    a serialized training.v1.Job, as large as the daemon's responses
#include <grpcpp/grpcpp.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "genesis/training/v1/training_service.grpc.pb.h"

namespace genesis {
namespace {

using namespace training::v1;  // NOLINT: the benchmark uses many names of the API.

class EchoService final : public TrainingService::CallbackService {
 public:
  explicit EchoService(Job job) : job_(std::move(job)) {}

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context, const GetJobRequest*,
                                   GetJobResponse* response) override {
    *response->mutable_job() = job_;
    return Done(context);
  }
  grpc::ServerUnaryReactor* Train(grpc::CallbackServerContext* context, const TrainRequest*,
                                  TrainResponse* response) override {
    *response->mutable_job() = job_;
    return Done(context);
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const Job job_;
};

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  genesis::training::v1::Job job;
  std::ifstream file(argc == 2 ? argv[1] : "", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  if (!file || !job.ParseFromString(bytes.str())) {
    std::cerr << "usage: echo_server JOB_FILE\n";
    return 2;
  }
  genesis::EchoService service(job);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::cout << port << std::endl;
  std::string ignored;
  std::getline(std::cin, ignored);
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}
