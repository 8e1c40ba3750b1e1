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
// call, makes the request from path, query and body, and hands it to what gRPC hands it to.
//
// Owner: the daemon; outlives the server. Threads: called on the server's; reading JSON and calling
// the API, which may read the store, is done on threads of its own. Failure: every refusal is
// ErrorResponse.
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

  // Whether the path is one of these, known or not.
  static bool IsHere(const HttpRequest& request);

  void Handle(const HttpRequest& request, const Respond& respond);

  // For methods whose request is a stream; neither upload nor refusal for others.
  HttpUploadStart Upload(const HttpRequest& request, const Respond& respond);

  static HttpResponse Refuse(const HttpRequest& request, int status, const std::string& why);

 private:
  using Fields = std::map<std::string, std::string>;

  void Call(const HttpRequest& request, const Respond& respond);
  // A request that reaches no method is answered, and counted.
  HttpResponse Counted(const std::string& path, HttpResponse response) const;
  void CallUnary(const MethodRow& method, const Fields& fields, const HttpRequest& request,
                 const Respond& respond) const;

  const Parts parts_;
  IoThreads threads_;  // Last: their tasks use what is above.
};

}  // namespace genesis
