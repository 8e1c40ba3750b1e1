#include "server/rest/openapi_schema.h"

#include "absl/strings/str_cat.h"
#include "config/job/field_rules.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

constexpr char kPrefix[] = "#/components/schemas/";

// "Finished.Outcome" for one in another message.
template <typename Type>
std::string NameOf(const Type& type) {
  return type.full_name().substr(type.file()->package().size() + 1);
}

void WriteScalar(const char* type, const char* format, JsonWriter& out) {
  out.Put("type", type);
  if (format[0] != '\0') out.Put("format", format);
}

// Timestamps and masks are written as text.
void WriteWellKnown(const Descriptor& type, JsonWriter& out) {
  WriteScalar("string", type.name() == "Timestamp" ? "date-time" : "", out);
}

bool IsWellKnown(const Descriptor& type) { return type.file()->package() == "google.protobuf"; }

}  // namespace

// A type that is known already was collected with all that it refers to.
void OpenApiSchemas::Collect(const Descriptor& type) {
  if (IsWellKnown(type) || !messages_.emplace(NameOf(type), &type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (field->is_map()) field = field->message_type()->map_value();
    if (field->enum_type() != nullptr) {
      enums_.emplace(NameOf(*field->enum_type()), field->enum_type());
    } else if (field->message_type() != nullptr) {
      Collect(*field->message_type());
    }
  }
}

void OpenApiSchemas::WriteReference(absl::string_view key, const Descriptor& type,
                                    JsonWriter& out) {
  Collect(type);
  out.Begin(key, '{').Put("$ref", absl::StrCat(kPrefix, NameOf(type))).End();
}

void OpenApiSchemas::WriteItem(const FieldDescriptor& field, JsonWriter& out) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return WriteScalar("integer", "int32", out);
    case FieldDescriptor::CPPTYPE_UINT32:
      return WriteScalar("integer", "uint32", out);
    case FieldDescriptor::CPPTYPE_INT64:
      return WriteScalar("string", "int64", out);
    case FieldDescriptor::CPPTYPE_UINT64:
      return WriteScalar("string", "uint64", out);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return WriteScalar("number", "double", out);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return WriteScalar("number", "float", out);
    case FieldDescriptor::CPPTYPE_BOOL:
      return WriteScalar("boolean", "", out);
    case FieldDescriptor::CPPTYPE_STRING:
      return WriteScalar("string", field.type() == FieldDescriptor::TYPE_BYTES ? "byte" : "", out);
    case FieldDescriptor::CPPTYPE_ENUM:
      enums_.emplace(NameOf(*field.enum_type()), field.enum_type());
      out.Put("$ref", absl::StrCat(kPrefix, NameOf(*field.enum_type())));
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (IsWellKnown(*field.message_type())) return WriteWellKnown(*field.message_type(), out);
      Collect(*field.message_type());
      out.Put("$ref", absl::StrCat(kPrefix, NameOf(*field.message_type())));
      return;
  }
}

void OpenApiSchemas::WriteFieldSchema(absl::string_view key, const FieldDescriptor& field,
                                      JsonWriter& out) {
  out.Begin(key, '{');
  if (field.is_map()) {
    out.Put("type", "object").Begin("additionalProperties", '{');
    WriteItem(*field.message_type()->map_value(), out);
    out.End();
  } else if (field.is_repeated()) {
    out.Put("type", "array").Begin("items", '{');
    WriteItem(field, out);
    out.End();
  } else {
    WriteItem(field, out);
  }
  const std::string comment = CommentOf(field);
  const std::string rule = RuleText(field);
  const std::string text = absl::StrCat(comment, comment.empty() || rule.empty() ? "" : " ", rule);
  if (!text.empty()) out.Put("description", text);
  out.End();
}

void OpenApiSchemas::WriteMessage(const Descriptor& type, JsonWriter& out) {
  out.Begin(NameOf(type), '{').Put("type", "object");
  const std::string comment = CommentOf(type);
  if (!comment.empty()) out.Put("description", comment);
  out.Begin("properties", '{');
  for (int i = 0; i < type.field_count(); ++i) {
    WriteFieldSchema(type.field(i)->name(), *type.field(i), out);
  }
  out.End().End();
}

void OpenApiSchemas::WriteEnum(const EnumDescriptor& type, JsonWriter& out) {
  out.Begin(NameOf(type), '{').Put("type", "string");
  std::string text = CommentOf(type);
  for (int i = 0; i < type.value_count(); ++i) {
    absl::StrAppend(&text, " ", type.value(i)->name(), ": ", CommentOf(*type.value(i)));
  }
  out.Put("description", text).Begin("enum", '[');
  for (int i = 0; i < type.value_count(); ++i) out.Add(type.value(i)->name());
  out.End().End();
}

void OpenApiSchemas::WriteAll(JsonWriter& out) {
  for (const auto& [name, type] : messages_) WriteMessage(*type, out);
  for (const auto& [name, type] : enums_) WriteEnum(*type, out);
}

}  // namespace genesis
