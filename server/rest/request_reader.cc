#include "server/rest/request_reader.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "server/rest/field_text.h"
#include "server/rest/path_template.h"
#include "server/rest/short_enum_names.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Value;

absl::Status FaultStatus(std::string path, std::string value, std::string accepted) {
  return ToStatus({{std::move(path), std::move(value), std::move(accepted)}});
}

// A finder of errors in a JSON value: names that the message does not have, of which protobuf's own
// parser reports only the first, without a suggestion; and nulls among the numbers of a map, which
// it reads as 0.
class JsonFaults {
 public:
  std::vector<FieldError> Find(const Value& value, const Descriptor& type) {
    Walk(value, type, "");
    return std::move(errors_);
  }

 private:
  void Walk(const Value& value, const Descriptor& type, const std::string& path) {
    // Timestamps and other well-known types have their own JSON forms.
    if (!value.has_struct_value() || type.file()->package() == "google.protobuf") return;
    for (const auto& [name, inner] : value.struct_value().fields()) {
      if (errors_.size() > kMaxFaultsListed) return;
      const std::string inner_path = path.empty() ? name : absl::StrCat(path, ".", name);
      const FieldDescriptor* field = FindField(type, name);
      if (field == nullptr) {
        errors_.push_back({inner_path, "", UnknownField(type, name)});
      } else {
        WalkField(inner, *field, inner_path);
      }
    }
  }

  void WalkField(const Value& value, const FieldDescriptor& field, const std::string& path) {
    if (field.is_map()) {
      const FieldDescriptor& mapped = *field.message_type()->map_value();
      for (const auto& [key, inner] : value.struct_value().fields()) {
        const std::string inner_path = absl::StrCat(path, ".", key);
        if (inner.has_null_value() && mapped.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
          errors_.push_back({inner_path, "null", "a number; leave the key out if it has none"});
        }
        WalkField(inner, mapped, inner_path);
      }
    } else if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      return;
    } else if (field.is_repeated()) {
      for (int i = 0; i < value.list_value().values_size(); ++i) {
        Walk(value.list_value().values(i), *field.message_type(), absl::StrCat(path, "[", i, "]"));
      }
    } else {
      Walk(value, *field.message_type(), path);
    }
  }

  std::vector<FieldError> errors_;
};

// Returns the first line of protobuf's message without its status code.
std::string FirstLine(const std::string& message) {
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  return OneLine(absl::StripPrefix(lines[0], "INVALID_ARGUMENT:"), kMaxLineBytes);
}

absl::Status DiagnoseJson(const std::string& text, const Descriptor& type,
                          const std::string& message) {
  // The text is parsed a second time, so the default limits for handwritten requests apply.
  if (absl::Status status = CheckJsonLimits(text, {}); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body does not fit ", type.name(), ": ", FirstLine(message)));
  }
  Value value;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &value);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not JSON: ", FirstLine(parsed.message().ToString()),
                     "; accepted: a JSON object with the fields of ", type.name()));
  }
  if (!value.has_struct_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is JSON, but no object; accepted: a JSON object with the fields of ",
                     type.name()));
  }
  const std::vector<FieldError> unknown = JsonFaults().Find(value, type);
  if (!unknown.empty()) return ToStatus(unknown);
  return absl::InvalidArgumentError(
      absl::StrCat("the body does not fit ", type.name(), ": ", FirstLine(message),
                   "; the types of its fields are in /v1/openapi.json"));
}

// Returns the errors that protobuf's parser does not find.
absl::Status CheckNulls(const std::string& text, const Descriptor& type) {
  // As above, the text is parsed a second time. Only handwritten requests have such maps.
  if (!absl::StrContains(text, "null") || !CheckJsonLimits(text, {}).ok()) return absl::OkStatus();
  Value value;
  if (!google::protobuf::util::JsonStringToMessage(text, &value).ok()) return absl::OkStatus();
  const std::vector<FieldError> faults = JsonFaults().Find(value, type);
  return faults.empty() ? absl::OkStatus() : ToStatus(faults);
}

// Sets a map entry: in "labels.team=a", the part after the dot is the key.
std::string SetInMap(const std::string& key, const std::string& text, const FieldDescriptor& map,
                     Message& message) {
  Message* const entry = message.GetReflection()->AddMessage(&message, &map);
  const std::string accepted = SetFromText(key, *map.message_type()->map_key(), *entry);
  if (!accepted.empty()) return absl::StrCat("a key that is ", accepted);
  return SetFromText(text, *map.message_type()->map_value(), *entry);
}

}  // namespace

absl::Status ReadField(const std::string& name, const std::string& text, Message& request) {
  Message* message = &request;
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const FieldDescriptor* field = FindField(*message->GetDescriptor(), parts[i]);
    if (field == nullptr) {
      return FaultStatus(name, "", UnknownField(*message->GetDescriptor(), parts[i]));
    }
    const bool last = i + 1 == parts.size();
    std::string accepted;
    if (field->is_map() && !last) {
      const std::string key =
          absl::StrJoin(parts.begin() + static_cast<long>(i) + 1, parts.end(), ".");
      accepted = SetInMap(key, text, *field, *message);
      return accepted.empty() ? absl::OkStatus() : FaultStatus(name, QuoteValue(text), accepted);
    }
    if (last) {
      accepted = SetFromText(text, *field, *message);
      return accepted.empty() ? absl::OkStatus() : FaultStatus(name, QuoteValue(text), accepted);
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_repeated()) {
      return FaultStatus(name, "", absl::StrCat("unknown; ", field->name(), " has no fields"));
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
  return absl::OkStatus();
}

namespace {

// Converts "labels[team]", OpenAPI's form, to "labels.team".
std::string WithDots(const std::string& name) {
  const size_t open = name.find('[');
  if (open == std::string::npos || name.back() != ']') return name;
  return absl::StrCat(name.substr(0, open), ".", name.substr(open + 1, name.size() - open - 2));
}

// Returns the field that a name with dots leads to; null for a key of a map or an unknown name.
const FieldDescriptor* LeafField(const Descriptor& type, const std::string& name) {
  const size_t dot = name.find('.');
  const FieldDescriptor* field = FindField(type, name.substr(0, dot));
  if (dot == std::string::npos || field == nullptr) return field;
  if (field->is_map() || field->message_type() == nullptr) return nullptr;
  return LeafField(*field->message_type(), name.substr(dot + 1));
}

}  // namespace

absl::Status ReadQuery(const std::string& query, Message& request) {
  std::set<std::string> seen;
  for (absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const size_t equals = part.find('=');
    const absl::StatusOr<std::string> name = DecodePercent(part.substr(0, equals), true);
    if (!name.ok()) return name.status();
    if (equals == absl::string_view::npos) {
      return FaultStatus(*name, "", absl::StrCat("needs a value; write ", *name, "=VALUE"));
    }
    const absl::StatusOr<std::string> text = DecodePercent(part.substr(equals + 1), true);
    if (!text.ok()) return text.status();
    const FieldDescriptor* field = LeafField(*request.GetDescriptor(), WithDots(*name));
    if (!seen.insert(*name).second && (field == nullptr || !field->is_repeated())) {
      return FaultStatus(*name, "", "given twice; keep one");
    }
    if (absl::Status status = ReadField(WithDots(*name), *text, request); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::Status ReadJson(const std::string& text, Message& request, const JsonLimits& limits) {
  if (text.empty()) return absl::OkStatus();
  if (absl::Status status = CheckJsonLimits(text, limits); !status.ok()) return status;
  if (!IsUtf8(text)) {
    return absl::InvalidArgumentError("the body is not UTF-8; accepted: JSON in UTF-8");
  }
  std::string binary;
  const auto parsed = google::protobuf::util::JsonToBinaryString(
      TypesWithShortEnumNames(), TypeUrl(*request.GetDescriptor()), text, &binary);
  if (parsed.ok() && request.ParseFromString(binary)) {
    return CheckNulls(text, *request.GetDescriptor());
  }
  return DiagnoseJson(text, *request.GetDescriptor(), parsed.message().ToString());
}

}  // namespace genesis
