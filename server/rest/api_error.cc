#include "server/rest/api_error.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "server/api/rpc_status.h"
#include "server/auth/request_rate.h"

namespace genesis {
namespace {

std::string Print(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
  return printed.ok() ? text : "null";
}

}  // namespace

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorJson(const absl::Status& status, int http_status) {
  google::protobuf::Value message;
  message.set_string_value(std::string(status.message()));
  std::string json =
      absl::StrCat("{\"error\":{\"code\":", http_status, ",\"status\":\"",
                   absl::StatusCodeToString(status.code()), "\",\"message\":", Print(message));
  const google::rpc::Status rpc = ToRpcStatus(status);
  const char* before = ",\"details\":[";
  for (const google::protobuf::Any& detail : rpc.details()) {
    absl::StrAppend(&json, before, Print(detail));
    before = ",";
  }
  return json + (rpc.details().empty() ? "}}\n" : "]}}\n");
}

HttpResponse ErrorResponse(const absl::Status& status, std::optional<int> http_status) {
  const int shown = http_status.value_or(HttpStatusOf(status.code()));
  HttpResponse response{
      .status = shown, .content_type = "application/json", .body = ErrorJson(status, shown)};
  if (absl::IsUnauthenticated(status)) response.headers = {{"WWW-Authenticate", "Bearer"}};
  if (absl::IsUnavailable(status) || status.GetPayload(kRetryInfoType).has_value()) {
    response.headers = {{"Retry-After", "1"}};
  }
  return response;
}

}  // namespace genesis
