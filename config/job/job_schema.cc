#include "config/job/job_schema.h"

#include <cstdint>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/json.h"
#include "base/text/message_limits.h"
#include "config/job/field_rules.h"
#include "config/job/proto_comments.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using training::v1::FieldRule;

// Prints 1e12 as users write it in a field of whole numbers: 1000000000000.
Json JsonNumber(const FieldDescriptor& field, double value) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? Json(value)
                                                             : Json(static_cast<int64_t>(value));
}

bool AcceptsZero(const FieldRule& rule) {
  return (!rule.has_least() || rule.least() <= 0) && (!rule.has_above() || rule.above() < 0) &&
         (!rule.has_most() || rule.most() >= 0) && (!rule.has_below() || rule.below() > 0);
}

// Adds default and range of a number.
void AddRule(const FieldDescriptor& field, const FieldRule& rule, Json& schema) {
  if (rule.has_default_value()) schema["default"] = JsonNumber(field, rule.default_value());
  Json range = Json::object();
  if (rule.has_least()) range["minimum"] = JsonNumber(field, rule.least());
  if (rule.has_above()) range["exclusiveMinimum"] = JsonNumber(field, rule.above());
  if (rule.has_most()) range["maximum"] = JsonNumber(field, rule.most());
  if (rule.has_below()) range["exclusiveMaximum"] = JsonNumber(field, rule.below());
  Json others = Json::array();
  if (rule.has_besides()) others.push_back(JsonNumber(field, rule.besides()));
  // 0 in a field without presence means that the number was not given.
  const bool listed = rule.has_besides() && rule.besides() == 0;
  if (!field.has_presence() && !AcceptsZero(rule) && !listed)
    others.push_back(JsonNumber(field, 0));
  if (others.empty()) {
    schema.update(range);
  } else {
    schema["anyOf"] = {range, {{"enum", others}}};
  }
}

Json EnumSchema(const EnumDescriptor& type) {
  std::string text = CommentOf(type);
  Json names = Json::array();
  for (int i = 1; i < type.value_count(); ++i) {  // Without UNSPECIFIED.
    const std::string name = ShortEnumName(*type.value(i));
    absl::StrAppend(&text, " ", name, ": ", CommentOf(*type.value(i)));
    names.push_back(name);
  }
  return {{"type", "string"}, {"description", text}, {"enum", std::move(names)}};
}

// A builder of the schemas of messages and enums. Used for one schema.
class Definitions {
 public:
  // Adds the keys of a message to a schema.
  void AddKeys(const Descriptor& type, Json& schema) {
    schema["additionalProperties"] = false;
    Json properties = Json::object();
    for (int i = 0; i < type.field_count(); ++i) {
      properties[type.field(i)->name()] = Field(*type.field(i));
    }
    schema["properties"] = std::move(properties);
    for (int i = 0; i < type.real_oneof_decl_count(); ++i) {
      for (int j = 0; j < type.oneof_decl(i)->field_count(); ++j) {
        schema["oneOf"].push_back({{"required", {type.oneof_decl(i)->field(j)->name()}}});
      }
    }
  }

  Json Take() {
    Json sorted = Json::object();
    for (auto& [name, schema] : schemas_) sorted[name] = std::move(schema);
    return sorted;
  }

 private:
  Json Field(const FieldDescriptor& field) {
    const int own = field.options().GetExtension(training::v1::max_items);
    const int most = own > 0 ? own : kMaxItems;
    Json schema;
    // A key without a value selects the defaults.
    if (field.is_map()) {
      schema = {{"type", {"object", "null"}},
                {"additionalProperties", Item(*field.message_type()->map_value())},
                {"maxProperties", most}};
    } else if (field.is_repeated()) {
      schema = {{"type", {"array", "null"}}, {"items", Item(field)}, {"maxItems", most}};
    } else {
      schema = Item(field);
    }
    if (const FieldRule* rule = RuleOf(field); rule != nullptr) {
      if (field.enum_type() == nullptr) {
        AddRule(field, *rule, schema);
      } else if (!DefaultText(field).empty()) {
        schema["default"] = DefaultText(field);
      }
    }
    schema["description"] = DescriptionOf(field);
    return schema;
  }

  Json Item(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return {{"type", "boolean"}};
      case FieldDescriptor::CPPTYPE_STRING:
        return {{"type", "string"}};
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return {{"type", "number"}};
      case FieldDescriptor::CPPTYPE_UINT64:
        return {{"type", "integer"}, {"minimum", 0}};
      case FieldDescriptor::CPPTYPE_ENUM:
        return Reference(*field.enum_type());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Reference(*field.message_type());
      default:
        return {{"type", "integer"}};
    }
  }

  template <typename Type>
  Json Reference(const Type& type) {
    const std::string name = type.full_name().substr(type.file()->package().size() + 1);
    if (schemas_.emplace(name, Json()).second) schemas_[name] = Schema(type);
    return {{"$ref", absl::StrCat("#/$defs/", name)}};
  }

  static Json Schema(const EnumDescriptor& type) { return EnumSchema(type); }
  Json Schema(const Descriptor& type) {
    Json schema = {{"type", {"object", "null"}}};
    if (const std::string comment = CommentOf(type); !comment.empty()) {
      schema["description"] = comment;
    }
    AddKeys(type, schema);
    return schema;
  }

  std::map<std::string, Json> schemas_;
};

}  // namespace

std::string JobSchema() {
  const Descriptor& job =
      *CommentedProtos().FindMessageTypeByName(training::v1::JobSpec::descriptor()->full_name());
  Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", "Job file of Genesis"},
      {"description", "What genesisctl train -f FILE submits and genesis-worker --spec FILE runs."},
      {"type", "object"},
      {"required", {"model", "dataset", "training"}}};
  Definitions definitions;
  definitions.AddKeys(job, schema);
  schema["$defs"] = definitions.Take();
  return PrintJson(schema);
}

}  // namespace genesis
