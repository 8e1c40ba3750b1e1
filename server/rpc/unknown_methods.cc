#include "server/rpc/unknown_methods.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const std::string& method) {
    Finish({grpc::StatusCode::UNIMPLEMENTED,
            absl::StrCat("there is no method ", QuoteValue(method),
                         "; the client may be of another version than this daemon")});
  }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  on_call_();
  return new Refusal(context->method());
}

}  // namespace genesis
