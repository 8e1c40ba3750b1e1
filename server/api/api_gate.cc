#include "server/api/api_gate.h"

#include "absl/strings/str_cat.h"
#include "base/steady_time.h"

namespace genesis {

absl::Status ApiGate::Admit(const MethodRow& method, const Credentials& credentials,
                            Caller* caller) const {
  absl::StatusOr<Caller> found = authenticator_->Authenticate(credentials);
  // An unauthenticated caller gets no name and the lowest role.
  *caller = found.ok() ? *found : Caller{"", Role::kViewer, ""};
  caller->peer = credentials.peer;
  if (!found.ok()) return found.status();
  if (MayDo(found->role, method.role)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      method.name, " needs the role ", RoleName(method.role), "; \"", found->name, "\" has ",
      RoleName(found->role), ": call as another, or ask an admin for more"));
}

absl::Status ApiGate::Count(const Caller& caller) const {
  const bool limited = caller.role == Role::kViewer || caller.role == Role::kSubmitter;
  return limited ? rate_.Take(caller.name, SteadyNow()) : absl::OkStatus();
}

void ApiGate::Done(const MethodRow& method, const std::string& protocol, const Caller& caller,
                   const std::string& subject, const absl::Status& status) const {
  const std::string code = absl::StatusCodeToString(status.code());
  metrics_->Request(protocol, method.name, code);
  const bool refused = absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
  if (audit_ == nullptr || (!method.audited && !refused)) return;
  audit_->Write({.caller = caller.name,
                 .role = caller.name.empty() ? "" : RoleName(caller.role),
                 .peer = caller.peer,
                 .protocol = protocol,
                 .method = method.name,
                 .subject = subject,
                 .outcome = code,
                 .refused = refused});
}

}  // namespace genesis
