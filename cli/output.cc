#include "cli/output.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/field_error.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/time_util.h"

namespace genesis::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Quotes text with the escapes that YAML and JSON share.
std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      quoted += absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Number(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  return FormatNumber(value);
}

// A writer of one message with its submessages. Used for one call.
class YamlWriter {
 public:
  void Write(const Message& message, int depth) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.has_presence() && !message.GetReflection()->HasField(message, &field)) continue;
      Indent(depth);
      absl::StrAppend(&text_, field.name(), ":");
      if (field.is_map()) {
        WriteMap(message, field, depth);
      } else if (field.is_repeated()) {
        WriteList(message, field, depth);
      } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        WriteBelow(message.GetReflection()->GetMessage(message, &field), depth);
      } else {
        absl::StrAppend(&text_, " ", Scalar(message, field, -1), "\n");
      }
    }
  }

  std::string Take() { return std::move(text_); }

 private:
  void Indent(int depth) { text_.append(static_cast<size_t>(depth) * 2, ' '); }

  // Writes the value after "name:".
  void WriteBelow(const Message& message, int depth) {
    if (message.GetDescriptor() == google::protobuf::Timestamp::descriptor()) {
      google::protobuf::Timestamp time;
      time.CopyFrom(message);
      absl::StrAppend(&text_, " \"", google::protobuf::util::TimeUtil::ToString(time), "\"\n");
      return;
    }
    YamlWriter below;
    below.Write(message, depth + 1);
    const std::string lines = below.Take();
    text_ += lines.empty() ? " {}\n" : "\n" + lines;
  }

  void WriteMap(const Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<std::string> lines;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
      lines.push_back(absl::StrCat(Scalar(entry, *field.message_type()->map_key(), -1), ": ",
                                   Scalar(entry, *field.message_type()->map_value(), -1), "\n"));
    }
    std::sort(lines.begin(), lines.end());  // The order of a map is unspecified.
    text_ += lines.empty() ? " {}\n" : "\n";
    for (const std::string& line : lines) {
      Indent(depth + 1);
      text_ += line;
    }
  }

  void WriteList(const Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& reflection = *message.GetReflection();
    const int size = reflection.FieldSize(message, &field);
    text_ += size == 0 ? " []\n" : "\n";
    for (int i = 0; i < size; ++i) {
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        YamlWriter below;
        below.Write(reflection.GetRepeatedMessage(message, &field, i), depth + 2);
        std::string lines = below.Take();
        if (lines.empty()) lines = std::string(static_cast<size_t>(depth) * 2 + 4, ' ') + "{}\n";
        // "- " replaces the last two spaces of the first line's indentation.
        lines.replace(static_cast<size_t>(depth) * 2 + 2, 2, "- ");
        text_ += lines;
      } else {
        Indent(depth + 1);
        absl::StrAppend(&text_, "- ", Scalar(message, field, i), "\n");
      }
    }
  }

  // Returns a scalar as text. `index` is -1 for a singular field.
  static std::string Scalar(const Message& message, const FieldDescriptor& field, int index) {
    const Reflection& r = *message.GetReflection();
#define GENESIS_GET(Type) \
  (index < 0 ? r.Get##Type(message, &field) : r.GetRepeated##Type(message, &field, index))
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return Quote(GENESIS_GET(String));
      case FieldDescriptor::CPPTYPE_ENUM:
        return GENESIS_GET(Enum)->name();
      case FieldDescriptor::CPPTYPE_BOOL:
        return GENESIS_GET(Bool) ? "true" : "false";
      case FieldDescriptor::CPPTYPE_FLOAT:
        return Number(GENESIS_GET(Float));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Number(GENESIS_GET(Double));
      case FieldDescriptor::CPPTYPE_INT32:
        return absl::StrCat(GENESIS_GET(Int32));
      case FieldDescriptor::CPPTYPE_INT64:
        return absl::StrCat(GENESIS_GET(Int64));
      case FieldDescriptor::CPPTYPE_UINT32:
        return absl::StrCat(GENESIS_GET(UInt32));
      case FieldDescriptor::CPPTYPE_UINT64:
        return absl::StrCat(GENESIS_GET(UInt64));
      default:
        return "null";
    }
#undef GENESIS_GET
  }

  std::string text_;
};

}  // namespace

std::string ToJson(const Message& message, bool compact) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = !compact;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    // Only an out-of-range timestamp can fail. The output must not look like a result.
    return absl::StrCat("{\"error\": ", Quote(status.ToString()), "}\n");
  }
  return compact ? json + "\n" : json;
}

std::string ToYaml(const Message& message) {
  YamlWriter writer;
  writer.Write(message, 0);
  const std::string text = writer.Take();
  return text.empty() ? "{}\n" : text;
}

}  // namespace genesis::cli
