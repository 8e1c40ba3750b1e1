#include "server/rest/json.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>

namespace genesis {

google::protobuf::Value& JsonObject::Field(const std::string& key) {
  return (*fields_.mutable_fields())[key];
}

JsonObject& JsonObject::Set(const std::string& key, const std::string& value) {
  Field(key).set_string_value(value);
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, const char* value) {
  Field(key).set_string_value(value);
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, bool value) {
  Field(key).set_bool_value(value);
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, double value) {
  if (!std::isfinite(value)) return SetNull(key);
  Field(key).set_number_value(value);
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, int64_t value) {
  Field(key).set_number_value(static_cast<double>(value));
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, const JsonObject& value) {
  *Field(key).mutable_struct_value() = value.fields_;
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, const std::vector<JsonObject>& values) {
  google::protobuf::ListValue* list = Field(key).mutable_list_value();
  for (const JsonObject& value : values) {
    *list->add_values()->mutable_struct_value() = value.fields_;
  }
  return *this;
}

JsonObject& JsonObject::Set(const std::string& key, const std::vector<std::string>& values) {
  google::protobuf::ListValue* list = Field(key).mutable_list_value();
  for (const std::string& value : values) list->add_values()->set_string_value(value);
  return *this;
}

JsonObject& JsonObject::SetNull(const std::string& key) {
  Field(key).set_null_value(google::protobuf::NULL_VALUE);
  return *this;
}

std::string JsonObject::Print() const {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(fields_, &text, options).ok()) return "{}\n";
  return text;
}

}  // namespace genesis
