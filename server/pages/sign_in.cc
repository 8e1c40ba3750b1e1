#include "server/pages/sign_in.h"

#include <google/protobuf/util/time_util.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"
#include "base/text/json.h"
#include "base/timestamp.h"
#include "server/base/guard.h"
#include "server/rest/api_error.h"
#include "server/rest/api_path.h"

namespace genesis {
namespace {

constexpr char kSessionPath[] = "/dashboard/session";
constexpr int kMaxAttemptsPerSecond = 1;  // Limit for one address.
constexpr char kBody[] = "{\"code\": \"CODE\"}, with the code of CreateLoginCode";

const MethodRow kStart = {"StartSession", Role::kViewer, true};
const MethodRow kEnd = {"EndSession", Role::kViewer, true};

// Returns the address of a peer, "ipv4:127.0.0.1", without its port.
std::string AddressOf(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

absl::StatusOr<std::string> CodeOf(const HttpRequest& request) {
  if (absl::Status status = CheckContentType(request, {"application/json"}); !status.ok()) {
    return status;
  }
  const Json body = Json::parse(request.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || !body.contains("code") || !body["code"].is_string()) {
    return absl::InvalidArgumentError(absl::StrCat("the body has no code; accepted: ", kBody));
  }
  return body["code"].get<std::string>();
}

HttpResponse NotStored(std::string body) {
  return {.content_type = "application/json",
          .body = std::move(body),
          .headers = {{"Cache-Control", "no-store"}}};
}

}  // namespace

SignIn::SignIn(TokenAuthenticator* authenticator, const ApiGate* gate)
    : authenticator_(authenticator), gate_(gate) {
  rate_.Set(kMaxAttemptsPerSecond);
}

bool SignIn::IsHere(const HttpRequest& request) { return request.path == kSessionPath; }

void SignIn::Handle(const HttpRequest& request, const Respond& respond) {
  threads_.Post([this, request, respond] {
    HttpResponse response{.status = 405,
                          .body = absl::StrCat(kSessionPath, " takes POST and DELETE\n"),
                          .headers = {{"Allow", "POST, DELETE"}}};
    const absl::Status made = Guarded(kSessionPath, [&] {
      if (request.method == "POST") response = Start(request);
      if (request.method == "DELETE") response = End(request);
    });
    respond(made.ok() ? std::move(response) : ErrorResponse(made));
  });
}

HttpResponse SignIn::Start(const HttpRequest& request) {
  const auto refuse = [&](const absl::Status& why) {
    gate_->Done(kStart, "http", Caller{"", Role::kViewer, request.peer}, "", why);
    return ErrorResponse(why);
  };
  if (absl::Status status = CheckOrigin(request); !status.ok()) return refuse(status);
  if (!rate_.Take(AddressOf(request.peer), SteadyNow()).ok()) {
    return refuse(absl::ResourceExhaustedError(
        "this address signs in more than once a second; wait a few seconds"));
  }
  const absl::StatusOr<std::string> code = CodeOf(request);
  if (!code.ok()) return refuse(code.status());
  const absl::StatusOr<BrowserSessions::Secret> session = authenticator_->StartSession(*code);
  if (!session.ok()) return refuse(session.status());
  // The caller may have lost its token since it got the code.
  const ApiCall call(gate_, kStart, "http",
                     {.authorization = absl::StrCat("Bearer ", session->text),
                      .certificate = "",
                      .peer = request.peer});
  call.Done("", call.admission());
  if (!call.admission().ok()) return ErrorResponse(call.admission());
  using google::protobuf::util::TimeUtil;
  return NotStored(PrintJson(
      {{"token", session->text}, {"expire_time", TimeUtil::ToString(ToTimestamp(session->end))}}));
}

HttpResponse SignIn::End(const HttpRequest& request) {
  if (absl::Status status = CheckOrigin(request); !status.ok()) return ErrorResponse(status);
  const std::string authorization = request.Header("authorization");
  const ApiCall call(gate_, kEnd, "http",
                     {.authorization = authorization, .certificate = "", .peer = request.peer});
  call.Done("", call.admission());
  if (!call.admission().ok()) return ErrorResponse(call.admission());
  authenticator_->EndSession(authorization);
  return NotStored("{}\n");
}

}  // namespace genesis
