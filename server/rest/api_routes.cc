#include "server/rest/api_routes.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "server/api/subject.h"
#include "server/base/guard.h"
#include "server/rest/api_error.h"
#include "server/rest/api_json.h"
#include "server/rest/api_path.h"
#include "server/rest/api_streams.h"
#include "server/rest/openapi.h"
#include "server/rest/request_reader.h"
#include "server/rest/unary_methods.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

// While one thread waits for the store, the other serves calls that need no store.
constexpr int kHandlerThreads = 2;

Credentials CredentialsOf(const HttpRequest& request) {
  return {.authorization = request.Header("authorization"),
          .certificate = request.certificate,
          .peer = request.peer,
          .certificate_fault = request.certificate_fault,
          .traceparent = request.Header("traceparent"),
          .is_gone = [gone = request.client_gone] { return gone != nullptr && *gone; }};
}

// Reads the request message from body or query, then from the path, which must not contradict.
absl::Status ReadRequest(const MethodRow& method, const std::map<std::string, std::string>& fields,
                         const HttpRequest& request, Message& message) {
  if (!method.body.empty()) {
    if (request.body.empty() && request.query.empty()) return ReadPathFields(fields, message);
    if (!request.query.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(method.verb, " ", method.path,
                                                     " takes its fields from a JSON body; the "
                                                     "query is ",
                                                     QuoteValue(request.query),
                                                     ", accepted: none"));
    }
    if (absl::Status status = CheckContentType(request, {"application/json"}); !status.ok()) {
      return status;
    }
    if (absl::Status status = ReadJson(request.body, message); !status.ok()) return status;
  } else {
    if (!request.body.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(method.verb, " ", method.path,
                                                     " takes its fields from the query; accepted: "
                                                     "no body"));
    }
    if (absl::Status status = ReadQuery(request.query, message); !status.ok()) return status;
  }
  return ReadPathFields(fields, message);
}

// The methods with a streamed response, keyed by request type.
using Serve = void (*)(const ApiStreamCall&, const ApiParts&);
const std::map<const Descriptor*, Serve>& ServedStreams() {
  static const auto& streams = *new std::map<const Descriptor*, Serve>{
      {training::v1::WatchJobRequest::descriptor(), &ServeWatch},
      {training::v1::WatchJobsRequest::descriptor(), &ServeFleetWatch},
      {training::v1::WatchWeightsRequest::descriptor(), &ServeWeightsWatch},
      {training::v1::DownloadCheckpointRequest::descriptor(),
       [](const ApiStreamCall& call, const ApiParts& parts) {
         ServeDownload(call, parts.jobs, parts.files);
       }},
  };
  return streams;
}

// The methods with a streamed request, keyed by request type.
using Take = HttpUploadStart (*)(const ApiStreamCall&, const ApiParts&);
const std::map<const Descriptor*, Take>& TakenStreams() {
  static const auto& streams = *new std::map<const Descriptor*, Take>{
      {training::v1::ImportCheckpointRequest::descriptor(),
       [](const ApiStreamCall& call, const ApiParts& parts) {
         return TakeImport(call, parts.jobs, parts.files);
       }},
      {training::v1::AppendTrajectoriesRequest::descriptor(),
       [](const ApiStreamCall& call, const ApiParts& parts) {
         return TakeAppend(call, parts.datasets, parts.metrics);
       }},
  };
  return streams;
}

absl::Status NoSuchMethod(const MethodRow& row) {
  return absl::UnimplementedError(absl::StrCat("this daemon has no method ", row.name));
}

}  // namespace

bool ApiRoutes::IsHere(const HttpRequest& request) {
  return request.path == "/v1" || absl::StartsWith(request.path, "/v1/");
}

HttpResponse ApiRoutes::Refuse(const HttpRequest& request, int status, const std::string& why) {
  if (!IsHere(request)) return {.status = status, .body = why + "\n"};
  if (status == 500) return ErrorResponse(absl::InternalError(why));
  return ErrorResponse(
      status == 503 ? absl::UnavailableError(why) : absl::ResourceExhaustedError(why), status);
}

ApiRoutes::ApiRoutes(const ApiParts& parts) : parts_(parts), threads_(kHandlerThreads) {}

HttpResponse ApiRoutes::Counted(const std::string& path, HttpResponse response) const {
  parts_.metrics->Request("http", path, absl::StrCat(response.status));
  return response;
}

void ApiRoutes::Handle(const HttpRequest& request, const Respond& respond) {
  threads_.Post([this, request, respond] {
    const absl::Status made = Guarded("http", [&] { Call(request, respond); });
    if (!made.ok()) respond(ErrorResponse(made));
  });
}

void ApiRoutes::Call(const HttpRequest& request, const Respond& respond) {
  if (absl::Status status = CheckOrigin(request); !status.ok()) {
    return respond(Counted("other", ErrorResponse(status)));
  }
  // The API description is public, so no token is required.
  if (request.path == "/v1/openapi.json" && (request.method == "GET" || request.method == "HEAD")) {
    return respond(
        Counted(request.path, {.content_type = "application/json", .body = OpenApiText()}));
  }
  ApiMatch match = FindTarget(request.method, request.path);
  if (match.refusal) return respond(Counted("other", *std::move(match.refusal)));
  const MethodRow& method = *match.target.method;
  const MethodDescriptor& descriptor = DescriptorOf(method);
  if (!descriptor.server_streaming()) {
    return CallUnary(method, match.target.fields, request, respond);
  }
  const ApiStreamCall call{ApiCall(parts_.gate, method, "http", CredentialsOf(request)), request,
                           match.target.fields, respond, &threads_};
  if (!call.call.admission().ok()) {
    call.call.Done("", call.call.admission());
    return respond(ErrorResponse(call.call.admission()));
  }
  const auto stream = ServedStreams().find(descriptor.input_type());
  if (stream == ServedStreams().end()) {
    call.call.Done("", NoSuchMethod(method));
    return respond(ErrorResponse(NoSuchMethod(method)));
  }
  stream->second(call, parts_);
}

HttpUploadStart ApiRoutes::Upload(const HttpRequest& request, const Respond& respond) {
  if (!IsHere(request)) return {};
  const ApiMatch match = FindTarget(request.method, request.path);
  if (match.refusal) return {};
  const MethodDescriptor& descriptor = DescriptorOf(*match.target.method);
  if (!descriptor.client_streaming()) return {};
  if (absl::Status status = CheckOrigin(request); !status.ok()) {
    return {.refusal = Counted("other", ErrorResponse(status))};
  }
  const ApiStreamCall call{
      ApiCall(parts_.gate, *match.target.method, "http", CredentialsOf(request)), request,
      match.target.fields, respond, &threads_};
  if (!call.call.admission().ok()) {
    call.call.Done("", call.call.admission());
    return {.refusal = ErrorResponse(call.call.admission())};
  }
  const auto stream = TakenStreams().find(descriptor.input_type());
  if (stream == TakenStreams().end()) {
    call.call.Done("", NoSuchMethod(*match.target.method));
    return {.refusal = ErrorResponse(NoSuchMethod(*match.target.method))};
  }
  return stream->second(call, parts_);
}

void ApiRoutes::CallUnary(const MethodRow& row, const Fields& fields, const HttpRequest& request,
                          const Respond& respond) const {
  const ApiCall call(parts_.gate, row, "http", CredentialsOf(request));
  const auto refuse = [&](const std::string& subject, const absl::Status& status) {
    call.Done(subject, status);
    respond(ErrorResponse(status));
  };
  if (!call.admission().ok()) return refuse("", call.admission());
  const UnaryMethod* method = FindUnaryMethod(row.name);
  if (method == nullptr) {
    return refuse("", NoSuchMethod(row));
  }
  const std::unique_ptr<Message> message = method->NewRequest();
  const absl::Status read = ReadRequest(row, fields, request, *message);
  const std::string subject = SubjectOf(*message);
  if (!read.ok()) return refuse(subject, read);
  method->Call(
      parts_.api, call.caller(), *message,
      [call, subject, respond](const absl::StatusOr<std::shared_ptr<const Message>>& response) {
        call.Done(subject, response.status());
        respond(response.ok() ? JsonResponse(**response) : ErrorResponse(response.status()));
      });
}

}  // namespace genesis
