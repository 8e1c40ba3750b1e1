#include "server/rest/openapi.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/version.h"
#include "config/settings/role.h"
#include "server/api/method_table.h"
#include "server/rest/json_writer.h"
#include "server/rest/openapi_schema.h"
#include "spdlog/spdlog.h"

namespace genesis {

// proto/CMakeLists.txt makes these.
extern const unsigned char kApiDescriptors[];
extern const size_t kApiDescriptorsSize;

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::MethodDescriptor;

constexpr char kService[] = "genesis.training.v1.TrainingService";
constexpr char kOctets[] = "application/octet-stream";
constexpr char kLines[] = "application/x-ndjson";

const MethodDescriptor* FindInPool(const std::string& name) {
  static const auto& pool = *[] {
    auto* made = new google::protobuf::DescriptorPool;
    google::protobuf::FileDescriptorSet files;
    files.ParseFromArray(kApiDescriptors, static_cast<int>(kApiDescriptorsSize));
    for (const auto& file : files.file()) made->BuildFile(file);
    return made;
  }();
  const MethodDescriptor* method = pool.FindMethodByName(absl::StrCat(kService, ".", name));
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
  std::string Write() {
    out_.Begin('{').Put("openapi", "3.1.0");
    out_.Begin("info", '{')
        .Put("title", "Genesis trainer")
        .Put("version", kVersion)
        .Put("description",
             "The methods of TrainingService as HTTP with JSON: protobuf's JSON, with the names of "
             "the proto. 64-bit numbers are strings in answers; requests may use either.")
        .End();
    out_.Begin("security", '[').Begin('{').Begin("token", '[').End().End().Begin('{').End().End();
    WritePaths();
    WriteComponents();
    return out_.End().Take();
  }

 private:
  void WritePaths() {
    std::map<std::string, std::vector<const MethodRow*>> paths;
    for (const MethodRow& row : MethodTable()) paths[row.path].push_back(&row);
    out_.Begin("paths", '{');
    for (const auto& [path, rows] : paths) {
      out_.Begin(path, '{');
      for (const MethodRow* row : rows) WriteOperation(*row);
      out_.End();
    }
    out_.End();
  }

  void WriteOperation(const MethodRow& row) {
    const MethodDescriptor& method = *FindInPool(row.name);
    out_.Begin(absl::AsciiStrToLower(row.verb), '{')
        .Put("operationId", row.name)
        .Put("description", CommentOf(method))
        .Put("x-role", RoleName(row.role));
    WriteParameters(row, *method.input_type());
    WriteRequestBody(row, method);
    WriteResponses(method);
    out_.End();
  }

  void WriteParameters(const MethodRow& row, const Descriptor& request) {
    const std::set<std::string> in_path = FieldsOfPath(row.path);
    const std::string verb = row.verb;
    const bool upload = CarriesFile(request);
    const bool query = verb == "GET" || verb == "DELETE" || upload;
    out_.Begin("parameters", '[');
    for (int i = 0; i < request.field_count(); ++i) {
      const FieldDescriptor& field = *request.field(i);
      const bool is_path = in_path.contains(field.name());
      if (!is_path && (!query || field.name() == "content")) continue;
      out_.Begin('{')
          .Put("name", field.name())
          .Put("in", is_path ? "path" : "query")
          .PutRaw("required", is_path ? "true" : "false")
          .Put("description", CommentOf(field));
      // "labels.team=a": a parameter for each key.
      if (field.is_map()) out_.Put("style", "deepObject");
      schemas_.WriteFieldSchema("schema", field, out_);
      out_.End();
    }
    out_.End();
  }

  void WriteRequestBody(const MethodRow& row, const MethodDescriptor& method) {
    const std::string verb = row.verb;
    if (verb == "GET" || verb == "DELETE") return;
    const bool file = CarriesFile(*method.input_type());
    out_.Begin("requestBody", '{').Begin("content", '{');
    out_.Begin(file ? kOctets : method.client_streaming() ? kLines : "application/json", '{');
    if (!file) schemas_.WriteReference("schema", *method.input_type(), out_);
    out_.End().End().End();
  }

  void WriteResponses(const MethodDescriptor& method) {
    out_.Begin("responses", '{').Begin("200", '{').Put("description", "Done.");
    out_.Begin("content", '{');
    if (CarriesFile(*method.output_type())) {
      out_.Begin(kOctets, '{').End();
    } else {
      const char* type = method.server_streaming() ? kLines : "application/json";
      out_.Begin(type, '{');
      schemas_.WriteReference("schema", *method.output_type(), out_);
      out_.End();
      if (method.server_streaming()) out_.Begin("text/event-stream", '{').End();
    }
    out_.End().End();
    out_.Begin("default", '{')
        .Put("description", "Refused, or failed.")
        .Begin("content", '{')
        .Begin("application/json", '{')
        .Begin("schema", '{')
        .Put("$ref", "#/components/schemas/Error")
        .End()
        .End()
        .End()
        .End();
    out_.End();
  }

  void WriteComponents() {
    out_.Begin("components", '{').Begin("securitySchemes", '{');
    out_.Begin("token", '{').Put("type", "http").Put("scheme", "bearer").End().End();
    out_.Begin("schemas", '{');
    WriteErrorSchema();
    schemas_.WriteAll(out_);
    out_.End().End();
  }

  void WriteErrorSchema() {
    out_.Begin("Error", '{').Put("type", "object").Begin("properties", '{');
    out_.Begin("error", '{').Put("type", "object").Begin("properties", '{');
    out_.Begin("code", '{').Put("type", "integer").Put("description", "The HTTP status.").End();
    out_.Begin("status", '{')
        .Put("type", "string")
        .Put("description", "The gRPC code, such as NOT_FOUND.")
        .End();
    out_.Begin("message", '{')
        .Put("type", "string")
        .Put("description", "What was tried, what is accepted, how to fix it.")
        .End();
    out_.Begin("details", '{')
        .Put("type", "array")
        .Put("description",
             "google.rpc.BadRequest with every fault of a field, where there are any.")
        .Begin("items", '{')
        .Put("type", "object")
        .End()
        .End();
    out_.End().End().End().End();
  }

  JsonWriter out_;
  OpenApiSchemas schemas_;
};

}  // namespace

const std::string& OpenApiText() {
  static const auto& text = *new std::string(OpenApi().Write());
  return text;
}

}  // namespace genesis
