#include "server/rest/openapi.h"

#include <google/protobuf/descriptor.h>

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/text/json.h"
#include "base/version.h"
#include "config/job/proto_comments.h"
#include "config/settings/role.h"
#include "server/api/method_table.h"
#include "server/rest/api_path.h"
#include "server/rest/openapi_schema.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MethodDescriptor;

constexpr char kService[] = "genesis.training.v1.TrainingService";
constexpr char kOctets[] = "application/octet-stream";

// A group of operations: generated clients and pages have a section for each.
struct Tag {
  const char* name;
  const char* description;
  std::vector<const char*> paths;  // Path prefixes of its operations.
};

// Returns the tags. An operation belongs to the first one with a matching path prefix.
const std::vector<Tag>& Tags() {
  static const auto& tags = *new std::vector<Tag>{
      {"events",
       "Events of all jobs, and their webhooks.",
       {"/v1/events", "/v1/jobs:watch", "/v1/webhook_deliveries"}},
      {"jobs", "Jobs and their artifacts.", {"/v1/jobs"}},
      {"checkpoints", "Checkpoints: records, download, import.", {"/v1/checkpoints"}},
      {"datasets", "Datasets, replay buffers, uploads.", {"/v1/datasets", "/v1/uploads"}},
      {"workers", "Worker processes and devices.", {"/v1/workers"}},
      {"precision", "The gate of reduced precision.", {"/v1/precision_policy"}},
      {"metrics", "Counters, and metrics of jobs over time.", {"/v1/stats", "/v1/history"}},
      {"daemon", "The daemon itself: version, settings, backups.", {"/v1/"}},
  };
  return tags;
}

const char* TagOf(const std::string& path) {
  for (const Tag& tag : Tags()) {
    for (const char* begin : tag.paths) {
      if (absl::StartsWith(path, begin)) return tag.name;
    }
  }
  return "";
}

Json TagList() {
  Json list = Json::array();
  for (const Tag& tag : Tags()) {
    list.push_back({{"name", tag.name}, {"description", tag.description}});
  }
  return list;
}

const MethodDescriptor* FindInPool(const std::string& name) {
  const MethodDescriptor* method =
      CommentedProtos().FindMethodByName(absl::StrCat(kService, ".", name));
  if (method == nullptr) {
    spdlog::critical("defect: the method table's {} is not in training_service.proto", name);
    std::abort();
  }
  return method;
}

std::set<std::string> FieldsOfPath(const std::string& path) {
  std::set<std::string> fields;
  for (const absl::string_view part : absl::StrSplit(path, '{')) {
    const size_t close = part.find('}');
    if (close != absl::string_view::npos) fields.insert(std::string(part.substr(0, close)));
  }
  return fields;
}

class OpenApi {
 public:
  Json Make() {
    Json paths = Paths();
    return {{"openapi", "3.1.0"},
            {"info",
             {{"title", "Genesis trainer"},
              {"version", kVersion},
              {"description",
               "The methods of TrainingService as HTTP with JSON: protobuf's JSON, with the names "
               "of the proto. 64-bit numbers are strings in answers; requests may use either."}}},
            {"tags", TagList()},
            {"security", Json::array({Json{{"token", Json::array()}}, Json::object()})},
            {"paths", std::move(paths)},
            {"components",
             {{"securitySchemes", {{"token", {{"type", "http"}, {"scheme", "bearer"}}}}},
              {"schemas", Schemas()}}}};
  }

 private:
  Json Paths() {
    std::map<std::string, std::vector<const MethodRow*>> rows_of;
    for (const MethodRow& row : MethodTable()) rows_of[row.path].push_back(&row);
    Json paths;
    for (const auto& [path, rows] : rows_of) {
      for (const MethodRow* row : rows) {
        paths[path][absl::AsciiStrToLower(row->verb)] = Operation(*row);
      }
    }
    return paths;
  }

  Json Operation(const MethodRow& row) {
    const MethodDescriptor& method = *FindInPool(row.name);
    Json operation = {{"operationId", row.name},
                      {"tags", Json::array({TagOf(row.path)})},
                      {"description", CommentOf(method)},
                      {"x-role", RoleName(row.role)},
                      {"parameters", Parameters(row, *method.input_type())}};
    if (!row.body.empty()) operation["requestBody"] = RequestBody(row, method);
    operation["responses"] = Responses(row, method);
    return operation;
  }

  Json Parameters(const MethodRow& row, const Descriptor& request) {
    const std::set<std::string> in_path = FieldsOfPath(row.path);
    Json parameters = Json::array();
    for (int i = 0; i < request.field_count(); ++i) {
      const FieldDescriptor& field = *request.field(i);
      if (in_path.contains(field.name())) {
        parameters.push_back(Parameter("path", field.name(), field));
      } else if (row.body != "*" && row.body != field.name()) {
        AddQuery(field.name(), field, parameters);
      }
    }
    return parameters;
  }

  // Adds one parameter, or for a message one for each of its fields: "filter.owner".
  void AddQuery(const std::string& name, const FieldDescriptor& field, Json& parameters) {
    if (field.message_type() == nullptr || field.is_map() || IsWellKnown(*field.message_type())) {
      parameters.push_back(Parameter("query", name, field));
      return;
    }
    const Descriptor& type = *field.message_type();
    for (int i = 0; i < type.field_count(); ++i) {
      AddQuery(absl::StrCat(name, ".", type.field(i)->name()), *type.field(i), parameters);
    }
  }

  Json Parameter(const std::string& place, const std::string& name, const FieldDescriptor& field) {
    Json parameter = {{"name", name},
                      {"in", place},
                      {"required", place == "path"},
                      {"description", CommentOf(field)}};
    // Deep objects: "labels[team]=a" is one parameter per key.
    if (field.is_map()) parameter["style"] = "deepObject";
    parameter["schema"] = schemas_.FieldSchema(field);
    return parameter;
  }

  Json RequestBody(const MethodRow& row, const MethodDescriptor& method) {
    if (row.body != "*") return {{"required", true}, {"content", Octets()}};
    const Json schema = schemas_.Request(*method.input_type(), FieldsOfPath(row.path));
    Json body = {{"content", {{"application/json", {{"schema", schema}}}}}};
    // OpenAPI 3.1 cannot describe a body of lines.
    if (method.client_streaming()) {
      body["description"] =
          absl::StrCat("One message, or any number as ", kJsonLines, ": each is one line of JSON.");
    }
    return body;
  }

  static Json Octets() {
    return {{kOctets, {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  }

  Json Responses(const MethodRow& row, const MethodDescriptor& method) {
    Json content;
    if (!row.response_body.empty()) {
      content = Octets();
    } else {
      const char* type = method.server_streaming() ? kJsonLines : "application/json";
      content[type]["schema"] = schemas_.Reference(*method.output_type());
      if (method.server_streaming()) content["text/event-stream"] = Json::object();
    }
    const Json error = {{"schema", {{"$ref", "#/components/schemas/Error"}}}};
    return {{"200", {{"description", "Done."}, {"content", std::move(content)}}},
            {"default",
             {{"description", "Refused, or failed."}, {"content", {{"application/json", error}}}}}};
  }

  Json Schemas() const {
    Json schemas = {{"Error", {{"type", "object"}, {"properties", {{"error", ErrorSchema()}}}}}};
    schemas_.AddAll(schemas);
    return schemas;
  }

  static Json ErrorSchema() {
    return {
        {"type", "object"},
        {"properties",
         {{"code", {{"type", "integer"}, {"description", "The HTTP status."}}},
          {"status", {{"type", "string"}, {"description", "The gRPC code, such as NOT_FOUND."}}},
          {"message",
           {{"type", "string"},
            {"description", "What was tried, what is accepted, how to fix it."}}},
          {"details",
           {{"type", "array"},
            {"description",
             "google.rpc.BadRequest with every fault of a field, where there are any."},
            {"items", {{"type", "object"}}}}}}}};
  }

  OpenApiSchemas schemas_;
};

}  // namespace

const std::string& OpenApiText() {
  static const auto& text = *new std::string(PrintJson(OpenApi().Make()));
  return text;
}

}  // namespace genesis
