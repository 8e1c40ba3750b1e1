#include "server/rest/api_json.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "server/rest/request_reader.h"

namespace genesis {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string ToJsonLine(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &text, options);
  return printed.ok() ? text + "\n" : "{}\n";
}

HttpResponse JsonResponse(const Message& message) {
  return {.content_type = "application/json", .body = ToJsonLine(message)};
}

absl::Status ReadPathFields(const std::map<std::string, std::string>& fields, Message& message) {
  for (const auto& [name, text] : fields) {
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
    const std::string before = message.GetReflection()->GetString(message, field);
    if (!before.empty() && before != text) {
      return ToStatus({{name, QuoteValue(before),
                        absl::StrCat(QuoteValue(text), ", as in the path, or none")}});
    }
    if (absl::Status status = ReadField(name, text, message); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace genesis
