#include "config/job/yaml_to_message.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "base/text/nearest.h"
#include "base/text/scalars.h"
#include "genesis/training/v1/field_rule.pb.h"
#include "google/protobuf/descriptor.h"

namespace genesis {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : absl::StrCat(prefix, ".", name);
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(type.field_count()));
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

// Finds the paths below `type` that end in `name`: where a misplaced key may belong.
void FindByName(const Descriptor& type, const std::string& name, const std::string& prefix,
                std::vector<std::string>& found) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.name() == name) found.push_back(Join(prefix, name));
    if (field.message_type() != nullptr) {
      FindByName(*field.message_type(), name, Join(prefix, field.name()), found);
    }
  }
}

// Returns the path of the first field below `type` that other programs name `name`; "" for none.
std::string FindBySynonym(const Descriptor& type, const std::string& name,
                          const std::string& prefix) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = Join(prefix, field.name());
    const auto& synonyms = field.options().GetRepeatedExtension(training::v1::synonyms);
    if (std::find(synonyms.begin(), synonyms.end(), name) != synonyms.end()) return path;
    if (field.message_type() == nullptr) continue;
    if (std::string found = FindBySynonym(*field.message_type(), name, path); !found.empty()) {
      return found;
    }
  }
  return "";
}

// A reader of a mapping and those nested in it. Used for one call; not thread-safe.
class Reader {
 public:
  explicit Reader(const Descriptor& root) : root_(root) {}

  void ReadMapping(const YAML::Node& mapping, const std::string& prefix, Message& message);
  YamlReading Take() { return std::move(reading_); }

 private:
  void ReadField(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                 const FieldDescriptor& field, Message& message);
  void ReadGroup(const YAML::Node& value, const std::string& path, Message& group);
  void ReadList(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                const FieldDescriptor& field, Message& message);
  void ReadMap(const YAML::Node& key, const YAML::Node& value, const std::string& path,
               const FieldDescriptor& field, Message& message);
  void ReadScalar(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                  const FieldDescriptor& field, Message& message);
  // Returns "" if `text` was set (or added to a list), otherwise what the field accepts.
  static std::string SetScalar(const std::string& text, const FieldDescriptor& field,
                               Message& message);
  bool CheckOneof(const YAML::Node& key, const std::string& path, const FieldDescriptor& field,
                  const Message& message);
  void UnknownKey(const YAML::Node& key, const std::string& prefix, const Descriptor& type);
  void Fault(const YAML::Node& node, const std::string& path, std::string value,
             std::string accepted);

  const Descriptor& root_;
  YamlReading reading_;
};

void Reader::Fault(const YAML::Node& node, const std::string& path, std::string value,
                   std::string accepted) {
  FieldError error;
  error.path = path;
  error.value = std::move(value);
  error.accepted = std::move(accepted);
  error.line = PlaceOf(node).line;
  error.column = PlaceOf(node).column;
  reading_.errors.push_back(std::move(error));
  reading_.faulty.insert(path);
}

void Reader::ReadMapping(const YAML::Node& mapping, const std::string& prefix, Message& message) {
  const Descriptor& type = *message.GetDescriptor();
  std::map<std::string, Place> seen;
  for (const auto& entry : mapping) {
    const YAML::Node& key = entry.first;
    if (!key.IsScalar()) {
      Fault(key, prefix, "", absl::StrCat("a key is ", DescribeYaml(key), "; accepted: a name"));
      continue;
    }
    const std::string path = Join(prefix, key.Scalar());
    const FieldDescriptor* field = type.FindFieldByName(key.Scalar());
    const auto [first, is_new] = seen.emplace(key.Scalar(), PlaceOf(key));
    if (field == nullptr) {
      UnknownKey(key, prefix, type);
    } else if (!is_new) {
      Fault(key, path, "",
            absl::StrCat("given twice; first at line ", first->second.line, "; keep one"));
    } else if (CheckOneof(key, path, *field, message)) {
      ReadField(key, entry.second, path, *field, message);
    }
  }
}

void Reader::UnknownKey(const YAML::Node& key, const std::string& prefix, const Descriptor& type) {
  const std::string& name = key.Scalar();
  const std::vector<std::string> known = FieldNames(type);
  std::string meant = FindBySynonym(root_, name, "");
  const std::string nearest = meant.empty() ? Nearest(name, known) : "";
  if (!nearest.empty()) meant = Join(prefix, nearest);
  std::vector<std::string> elsewhere;
  if (meant.empty()) FindByName(root_, name, "", elsewhere);
  if (!elsewhere.empty()) meant = elsewhere.front();
  const std::string hint = meant.empty()
                               ? absl::StrCat("accepted here: ", absl::StrJoin(known, ", "))
                               : absl::StrCat("did you mean ", meant, "?");
  // A key may contain any character. Quoting keeps control characters out of terminals.
  const std::string shown = Join(prefix, name);
  const bool plain = QuoteValue(shown) == absl::StrCat("\"", shown, "\"");
  Fault(key, plain ? shown : QuoteValue(shown), "", "unknown key; " + hint);
  if (!meant.empty()) reading_.faulty.insert(meant);
}

bool Reader::CheckOneof(const YAML::Node& key, const std::string& path,
                        const FieldDescriptor& field, const Message& message) {
  const google::protobuf::OneofDescriptor* oneof = field.real_containing_oneof();
  if (oneof == nullptr) return true;
  const FieldDescriptor* set = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  if (set == nullptr || set == &field) return true;
  std::vector<std::string> members;
  members.reserve(static_cast<size_t>(oneof->field_count()));
  for (int i = 0; i < oneof->field_count(); ++i) members.push_back(oneof->field(i)->name());
  Fault(
      key, path, "",
      absl::StrCat("conflicts with ", set->name(), "; give one of ", absl::StrJoin(members, ", ")));
  return false;
}

void Reader::ReadField(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                       const FieldDescriptor& field, Message& message) {
  if (field.is_map()) {
    ReadMap(key, value, path, field, message);
  } else if (field.is_repeated()) {
    ReadList(key, value, path, field, message);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    reading_.places[path] = PlaceOf(key);
    ReadGroup(value, path, *message.GetReflection()->MutableMessage(&message, &field));
  } else {
    ReadScalar(key, value, path, field, message);
  }
}

void Reader::ReadList(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                      const FieldDescriptor& field, Message& message) {
  reading_.places[path] = PlaceOf(key);
  if (value.IsNull()) return;
  if (!value.IsSequence()) {
    Fault(value, path, DescribeYaml(value), "a list, such as [a, b]");
    return;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string item = absl::StrCat(path, "[", i, "]");
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      reading_.places[item] = PlaceOf(value[i]);
      ReadGroup(value[i], item, *message.GetReflection()->AddMessage(&message, &field));
    } else {
      ReadScalar(key, value[i], item, field, message);
    }
  }
}

// Reads a map of strings, such as labels.
void Reader::ReadMap(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                     const FieldDescriptor& field, Message& message) {
  reading_.places[path] = PlaceOf(key);
  if (value.IsNull()) return;
  if (!value.IsMap()) {
    Fault(value, path, DescribeYaml(value), "names with texts, such as {team: robots}");
    return;
  }
  std::set<std::string> seen;
  for (const auto& entry : value) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      Fault(entry.first, path, "", "has a value that is not text; accepted: names with texts");
      continue;
    }
    const std::string& name = entry.first.Scalar();
    if (!seen.insert(name).second) {
      Fault(entry.first, Join(path, name), "", "given twice; keep one");
      continue;
    }
    reading_.places[Join(path, name)] = PlaceOf(entry.second);
    Message* added = message.GetReflection()->AddMessage(&message, &field);
    const Descriptor& type = *added->GetDescriptor();
    added->GetReflection()->SetString(added, type.map_key(), name);
    added->GetReflection()->SetString(added, type.map_value(), entry.second.Scalar());
  }
}

void Reader::ReadScalar(const YAML::Node& key, const YAML::Node& value, const std::string& path,
                        const FieldDescriptor& field, Message& message) {
  // The mark of an empty value is that of the next token, which may be many lines below.
  const YAML::Node& place = value.IsNull() ? key : value;
  reading_.places[path] = PlaceOf(place);
  // A value that is not a scalar is set as "", to find out what the field accepts.
  const std::string accepted = SetScalar(value.IsScalar() ? value.Scalar() : "", field, message);
  if (!value.IsScalar()) {
    Fault(place, path, DescribeYaml(value), accepted.empty() ? "text" : accepted);
  } else if (!accepted.empty()) {
    Fault(place, path, DescribeYaml(value), accepted);
  }
}

void Reader::ReadGroup(const YAML::Node& value, const std::string& path, Message& group) {
  if (value.IsMap()) {
    ReadMapping(value, path, group);
  } else if (!value.IsNull()) {  // "world_model:" alone selects the defaults.
    Fault(
        value, path, DescribeYaml(value),
        absl::StrCat("a group of keys: ", absl::StrJoin(FieldNames(*group.GetDescriptor()), ", ")));
  }
}

std::string Reader::SetScalar(const std::string& text, const FieldDescriptor& field,
                              Message& message) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      field.is_repeated() ? reflection.AddString(&message, &field, text)
                          : reflection.SetString(&message, &field, text);
      return "";
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = ParseBool(text);
      if (!value.has_value()) return "true or false";
      field.is_repeated() ? reflection.AddBool(&message, &field, *value)
                          : reflection.SetBool(&message, &field, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> value = ParseDouble(text);
      if (!value.has_value()) return "a number, such as 0.5 or 1e-3";
      field.is_repeated() ? reflection.AddDouble(&message, &field, *value)
                          : reflection.SetDouble(&message, &field, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      const std::optional<int64_t> value = ParseInt64(text);
      if (!value.has_value()) return "a whole number";
      if (*value != static_cast<int32_t>(*value)) return "a whole number of at most 2147483647";
      field.is_repeated() ? reflection.AddInt32(&message, &field, static_cast<int32_t>(*value))
                          : reflection.SetInt32(&message, &field, static_cast<int32_t>(*value));
      return "";
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::optional<int64_t> value = ParseInt64(text);
      if (!value.has_value()) return "a whole number";
      field.is_repeated() ? reflection.AddInt64(&message, &field, *value)
                          : reflection.SetInt64(&message, &field, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::optional<uint64_t> value = ParseUint64(text);
      if (!value.has_value()) return "a whole number from 0 to 18446744073709551615";
      field.is_repeated() ? reflection.AddUInt64(&message, &field, *value)
                          : reflection.SetUInt64(&message, &field, *value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = FindEnumValue(*field.enum_type(), text);
      if (value == nullptr) return ShortEnumNames(*field.enum_type());
      field.is_repeated() ? reflection.AddEnum(&message, &field, value)
                          : reflection.SetEnum(&message, &field, value);
      return "";
    }
    default:
      return "nothing: fields of this type are not read";
  }
}

}  // namespace

YamlReading ReadYamlMessage(const YAML::Node& mapping, Message& message) {
  Reader reader(*message.GetDescriptor());
  reader.ReadMapping(mapping, "", message);
  return reader.Take();
}

}  // namespace genesis
