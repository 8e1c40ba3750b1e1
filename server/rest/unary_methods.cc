#include "server/rest/unary_methods.h"

#include <map>

#include "server/api/unary_call.h"

namespace genesis {
namespace {

template <typename Request, typename Response>
class TypedMethod final : public UnaryMethod {
 public:
  explicit TypedMethod(UnaryMember<Request, Response> member) : member_(member) {}

  std::unique_ptr<Message> NewRequest() const override { return std::make_unique<Request>(); }

  void Call(TrainingApi* api, const Caller& caller, const Message& request,
            const Callback<std::shared_ptr<const Message>>& callback) const override {
    CallUnary<Request, Response>(api, member_, caller, static_cast<const Request&>(request),
                                 [callback](const absl::StatusOr<Response>& response) {
                                   if (!response.ok()) return callback(response.status());
                                   callback(std::make_shared<const Response>(*response));
                                 });
  }

 private:
  const UnaryMember<Request, Response> member_;
};

template <typename Request, typename Response>
std::unique_ptr<UnaryMethod> MakeMethod(UnaryMember<Request, Response> member) {
  return std::make_unique<TypedMethod<Request, Response>>(member);
}

}  // namespace

const UnaryMethod* FindUnaryMethod(const std::string& name) {
  static const auto& methods = *[] {
    auto* made = new std::map<std::string, std::unique_ptr<UnaryMethod>>;
#define GENESIS_UNARY(Name) (*made)[#Name] = MakeMethod(&TrainingApi::Name);
    GENESIS_UNARY_METHODS(GENESIS_UNARY)
#undef GENESIS_UNARY
    return made;
  }();
  const auto found = methods.find(name);
  return found == methods.end() ? nullptr : found->second.get();
}

}  // namespace genesis
