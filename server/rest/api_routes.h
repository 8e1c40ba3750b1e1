#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "server/api/api_parts.h"
#include "server/http/http_message.h"

namespace genesis {

// TrainingService as HTTP with JSON below /v1. Finds the method in the method table, admits the
// call, builds the request from path, query and body, and calls the same code as gRPC.
//
// Owner: the daemon; outlives the server. Threads: called on the server's thread. Other threads
// parse JSON and call the API, which may read the store. Failure: refusals use ErrorResponse.
class ApiRoutes {
 public:
  explicit ApiRoutes(const ApiParts& parts);

  // Returns true if the path belongs to the API, even if it is unknown.
  static bool IsHere(const HttpRequest& request);

  void Handle(const HttpRequest& request, const Respond& respond);

  // Handles methods with a streamed request. For others, neither upload nor refusal is set.
  HttpUploadStart Upload(const HttpRequest& request, const Respond& respond);

  static HttpResponse Refuse(const HttpRequest& request, int status, const std::string& why);

 private:
  using Fields = std::map<std::string, std::string>;

  void Call(const HttpRequest& request, const Respond& respond);
  // Counts a response to a request that reaches no method.
  HttpResponse Counted(const std::string& path, HttpResponse response) const;
  void CallUnary(const MethodRow& method, const Fields& fields, const HttpRequest& request,
                 const Respond& respond) const;

  const ApiParts parts_;
  IoThreads threads_;  // Last, because its tasks use the members above.
};

}  // namespace genesis
