#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/api/api_gate.h"
#include "server/api/training_api.h"
#include "server/datasets/replay_store.h"
#include "server/http/http_message.h"

namespace genesis {

// TrainingService as HTTP with JSON below /v1: finds the method in the method table, admits the
// call, builds the request from path, query and body, and calls the same code as gRPC.
//
// Owner: the daemon; outlives the server. Threads: called on the server's; separate threads read
// JSON and call the API, which may read the store. Failure: every refusal is ErrorResponse.
class ApiRoutes {
 public:
  struct Parts {
    ApiGate* gate;
    TrainingApi* api;
    JobManager* jobs;
    ReplayStore* datasets;
    CheckpointFiles* files;
    Metrics* metrics;
  };
  explicit ApiRoutes(Parts parts);

  // Returns true if the path belongs to the API, known or not.
  static bool IsHere(const HttpRequest& request);

  void Handle(const HttpRequest& request, const Respond& respond);

  // For methods with a streamed request; others get neither upload nor refusal.
  HttpUploadStart Upload(const HttpRequest& request, const Respond& respond);

  static HttpResponse Refuse(const HttpRequest& request, int status, const std::string& why);

 private:
  using Fields = std::map<std::string, std::string>;

  void Call(const HttpRequest& request, const Respond& respond);
  // Counts the response to a request that reaches no method.
  HttpResponse Counted(const std::string& path, HttpResponse response) const;
  void CallUnary(const MethodRow& method, const Fields& fields, const HttpRequest& request,
                 const Respond& respond) const;

  const Parts parts_;
  IoThreads threads_;  // Last, because its tasks use the members above.
};

}  // namespace genesis
