#include "server/rest/short_enum_names.h"

#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "google/protobuf/type.pb.h"
#include "google/protobuf/util/type_resolver_util.h"

namespace genesis {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::util::Status;
using google::protobuf::util::TypeResolver;

constexpr char kPrefix[] = "type.googleapis.com";

// A resolver of the generated types whose enums have each value under its short name too. The
// parser looks up names in the order of the values and takes the first.
class WithShortNames : public TypeResolver {
 public:
  Status ResolveMessageType(const std::string& url, google::protobuf::Type* type) override {
    return generated_->ResolveMessageType(url, type);
  }

  Status ResolveEnumType(const std::string& url, google::protobuf::Enum* type) override {
    Status status = generated_->ResolveEnumType(url, type);
    const EnumDescriptor* const known =
        DescriptorPool::generated_pool()->FindEnumTypeByName(type->name());
    if (!status.ok() || known == nullptr) return status;
    for (int i = 0; i < known->value_count(); ++i) {
      google::protobuf::EnumValue& added = *type->add_enumvalue();
      added.set_name(ShortEnumName(*known->value(i)));
      added.set_number(known->value(i)->number());
    }
    return status;
  }

 private:
  const std::unique_ptr<TypeResolver> generated_{
      google::protobuf::util::NewTypeResolverForDescriptorPool(kPrefix,
                                                               DescriptorPool::generated_pool())};
};

}  // namespace

TypeResolver* TypesWithShortEnumNames() {
  static auto* const types = new WithShortNames;
  return types;
}

std::string TypeUrl(const google::protobuf::Descriptor& type) {
  return absl::StrCat(kPrefix, "/", type.full_name());
}

}  // namespace genesis
