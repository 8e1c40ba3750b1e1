#include "server/rest/field_text.h"

#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/time_util.h>

#include <limits>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "base/text/nearest.h"
#include "base/text/scalars.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

constexpr size_t kLongestName = 100;

// Sets a singular field or appends to a repeated one.
#define GENESIS_SET(Type, value)                                         \
  (field.is_repeated() ? reflection.Add##Type(&message, &field, (value)) \
                       : reflection.Set##Type(&message, &field, (value)))

}  // namespace

std::string SetFromText(const std::string& text, const FieldDescriptor& field, Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const std::optional<int64_t> value = ParseInt64(text);
      using Limits = std::numeric_limits<int32_t>;
      if (!value || *value < Limits::min() || *value > Limits::max()) return "a whole number";
      GENESIS_SET(Int32, static_cast<int32_t>(*value));
      return "";
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::optional<int64_t> value = ParseInt64(text);
      if (!value) return "a whole number";
      GENESIS_SET(Int64, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const std::optional<uint64_t> value = ParseUint64(text);
      if (!value || *value > std::numeric_limits<uint32_t>::max()) return "0 to 4294967295";
      GENESIS_SET(UInt32, static_cast<uint32_t>(*value));
      return "";
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::optional<uint64_t> value = ParseUint64(text);
      if (!value) return "a whole number, 0 or more";
      GENESIS_SET(UInt64, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> value = ParseDouble(text);
      if (!value) return "a number";
      GENESIS_SET(Double, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const std::optional<double> value = ParseDouble(text);
      if (!value) return "a number";
      GENESIS_SET(Float, static_cast<float>(*value));
      return "";
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = ParseBool(text);
      if (!value) return "true or false";
      GENESIS_SET(Bool, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = FindEnumValue(*field.enum_type(), text);
      if (value == nullptr) return ShortEnumNames(*field.enum_type());
      GENESIS_SET(Enum, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string bytes = text;
      if (field.type() == FieldDescriptor::TYPE_BYTES && !absl::Base64Unescape(text, &bytes)) {
        return "bytes in base64";
      }
      GENESIS_SET(String, bytes);
      return "";
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field.message_type() == Timestamp::descriptor()) {
        Timestamp time;
        if (!TimeUtil::FromString(text, &time)) return "a time such as 2026-01-31T12:00:00Z";
        reflection.MutableMessage(&message, &field)->CopyFrom(time);
        return "";
      }
      return absl::StrCat("a field of it, such as ", field.name(), ".",
                          field.is_map() ? "KEY" : field.message_type()->field(0)->name(),
                          "=VALUE");
  }
  return "nothing";
}

#undef GENESIS_SET

const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  if (field != nullptr) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == name) return type.field(i);
  }
  return nullptr;
}

std::string UnknownField(const Descriptor& type, const std::string& name) {
  std::vector<std::string> known;
  for (int i = 0; i < type.field_count(); ++i) known.push_back(type.field(i)->name());
  if (known.empty()) return "unknown; no field is accepted here";
  // Text much longer than any name has no similar name, and the comparison would take long.
  const std::string nearest = name.size() <= kLongestName ? Nearest(name, known) : "";
  if (!nearest.empty()) return absl::StrCat("unknown; did you mean ", nearest, "?");
  return absl::StrCat("unknown; accepted here: ", absl::StrJoin(known, ", "));
}

}  // namespace genesis
