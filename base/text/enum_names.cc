#include "base/text/enum_names.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

constexpr char kUnspecified[] = "UNSPECIFIED";

absl::string_view Prefix(const EnumDescriptor& type) {
  return absl::StripSuffix(type.FindValueByNumber(0)->name(), kUnspecified);
}

}  // namespace

std::string ShortEnumName(const EnumValueDescriptor& value) {
  return std::string(absl::StripPrefix(value.name(), Prefix(*value.type())));
}

std::string ShortEnumName(const EnumDescriptor& type, int number) {
  const EnumValueDescriptor* value = type.FindValueByNumber(number);
  return value != nullptr ? ShortEnumName(*value) : absl::StrCat(number);
}

const EnumValueDescriptor* FindEnumValue(const EnumDescriptor& type, const std::string& name) {
  const EnumValueDescriptor* value = type.FindValueByName(absl::StrCat(Prefix(type), name));
  return value != nullptr ? value : type.FindValueByName(name);
}

std::string ShortEnumNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    std::string name = ShortEnumName(*type.value(i));
    if (name != kUnspecified) names.push_back(std::move(name));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace genesis
