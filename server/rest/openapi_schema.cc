#include "server/rest/openapi_schema.h"

#include "absl/strings/str_cat.h"
#include "config/job/proto_comments.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

constexpr char kPrefix[] = "#/components/schemas/";

// Returns the name without package: "Finished.Outcome" for a nested type.
template <typename Type>
std::string NameOf(const Type& type) {
  return type.full_name().substr(type.file()->package().size() + 1);
}

Json Scalar(const char* type, const char* format = "", const char* pattern = "") {
  Json schema = {{"type", type}};
  if (format[0] != '\0') schema["format"] = format;
  if (pattern[0] != '\0') schema["pattern"] = pattern;
  return schema;
}

// Returns the schema of a timestamp or a field mask, which are strings in JSON.
Json WellKnown(const Descriptor& type) {
  return Scalar("string", type.name() == "Timestamp" ? "date-time" : "");
}

Json EnumSchema(const EnumDescriptor& type) {
  std::string text = CommentOf(type);
  Json names = Json::array();
  for (int i = 0; i < type.value_count(); ++i) {
    absl::StrAppend(&text, " ", type.value(i)->name(), ": ", CommentOf(*type.value(i)));
    names.push_back(type.value(i)->name());
  }
  return {{"type", "string"}, {"description", text}, {"enum", std::move(names)}};
}

}  // namespace

bool IsWellKnown(const Descriptor& type) { return type.file()->package() == "google.protobuf"; }

// Collects the type and, recursively, all types that it refers to. Skips collected ones (cycles).
void OpenApiSchemas::Collect(const Descriptor& type, bool of_request) {
  if (IsWellKnown(type)) return;
  const std::string name = NameOf(type);
  const bool added = messages_.emplace(name, &type).second;
  if (!(of_request ? of_requests_.insert(name).second : added)) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->is_map()) field = field->message_type()->map_value();
    if (field->enum_type() != nullptr) {
      enums_.emplace(NameOf(*field->enum_type()), field->enum_type());
    } else if (field->message_type() != nullptr) {
      Collect(*field->message_type(), of_request);
    }
  }
}

Json OpenApiSchemas::Reference(const Descriptor& type) {
  Collect(type, /*of_request=*/false);
  return {{"$ref", kPrefix + NameOf(type)}};
}

Json OpenApiSchemas::Request(const Descriptor& type, const std::set<std::string>& in_path) {
  Collect(type, /*of_request=*/true);
  in_path_[NameOf(type)] = in_path;
  return Reference(type);
}

Json OpenApiSchemas::Item(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Scalar("integer", "int32");
    case FieldDescriptor::CPPTYPE_UINT32:
      return Scalar("integer", "uint32");
    case FieldDescriptor::CPPTYPE_INT64:
      return Scalar("string", "int64", "^(0|-?[1-9][0-9]*)$");
    case FieldDescriptor::CPPTYPE_UINT64:
      return Scalar("string", "uint64", "^(0|[1-9][0-9]*)$");
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Scalar("number", "double");
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Scalar("number", "float");
    case FieldDescriptor::CPPTYPE_BOOL:
      return Scalar("boolean");
    case FieldDescriptor::CPPTYPE_STRING:
      return Scalar("string", field.type() == FieldDescriptor::TYPE_BYTES ? "byte" : "");
    case FieldDescriptor::CPPTYPE_ENUM:
      enums_.emplace(NameOf(*field.enum_type()), field.enum_type());
      return {{"$ref", kPrefix + NameOf(*field.enum_type())}};
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  const Descriptor& type = *field.message_type();
  return IsWellKnown(type) ? WellKnown(type) : Reference(type);
}

Json OpenApiSchemas::FieldSchema(const FieldDescriptor& field) {
  Json schema;
  if (field.is_map()) {
    schema = {{"type", "object"},
              {"additionalProperties", Item(*field.message_type()->map_value())}};
  } else if (field.is_repeated()) {
    schema = {{"type", "array"}, {"items", Item(field)}};
  } else {
    schema = Item(field);
  }
  const std::string text = DescriptionOf(field);
  if (!text.empty()) schema["description"] = text;
  return schema;
}

Json OpenApiSchemas::MessageSchema(const Descriptor& type) const {
  Json schema = {{"type", "object"}};
  const std::string comment = CommentOf(type);
  if (!comment.empty()) schema["description"] = comment;
  const std::string type_name = NameOf(type);
  if (of_requests_.contains(type_name)) schema["additionalProperties"] = false;
  const auto in_path = in_path_.find(type_name);
  // FieldSchema collects types, so call it on a copy. All types are already collected here.
  OpenApiSchemas known = *this;
  Json& properties = schema["properties"] = Json::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string& name = type.field(i)->name();
    if (in_path != in_path_.end() && in_path->second.contains(name)) continue;
    properties[name] = known.FieldSchema(*type.field(i));
  }
  return schema;
}

void OpenApiSchemas::AddAll(Json& schemas) const {
  for (const auto& [name, type] : messages_) schemas[name] = MessageSchema(*type);
  for (const auto& [name, type] : enums_) schemas[name] = EnumSchema(*type);
}

}  // namespace genesis
