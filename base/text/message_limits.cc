#include "base/text/message_limits.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "base/text/text.h"
#include "genesis/training/v1/field_rule.pb.h"

namespace genesis {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Room for a path of kMaxStringBytes and its authentication code, in base64.
constexpr size_t kMaxTokenBytes = 2 * kMaxStringBytes;

// Returns whether a field is a float or a Boolean, whose lists only the message size bounds.
bool IsColumn(const FieldDescriptor& field) {
  const auto type = field.cpp_type();
  return type == FieldDescriptor::CPPTYPE_FLOAT || type == FieldDescriptor::CPPTYPE_BOOL;
}

enum class Look { kSizes, kEnums };

class LimitCheck {
 public:
  explicit LimitCheck(Look look) : look_(look) {}

  std::vector<FieldError> Check(const Message& message) {
    Walk(message, "");
    return std::move(faults_);
  }

 private:
  bool Full() const { return faults_.size() >= kMaxFaultsListed; }

  void Walk(const Message& message, const std::string& prefix) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (Full()) return;
      const std::string path = absl::StrCat(prefix, field->name());
      if (field->is_repeated()) {
        CheckList(message, *field, path);
      } else {
        CheckValue(message, *field, -1, path);
      }
    }
  }

  void CheckList(const Message& message, const FieldDescriptor& field, const std::string& path) {
    const int size = message.GetReflection()->FieldSize(message, &field);
    if (IsColumn(field)) return;
    const int own = field.options().GetExtension(training::v1::max_items);
    const int most = own > 0 ? own : kMaxItems;
    if (look_ == Look::kSizes && size > most) {
      Add(path, "",
          absl::StrCat("has ", size, field.is_map() ? " keys" : " values", "; accepted: at most ",
                       most));
      return;
    }
    for (int i = 0; i < size && !Full(); ++i) {
      if (field.is_map()) {
        CheckEntry(message.GetReflection()->GetRepeatedMessage(message, &field, i), path);
      } else {
        CheckValue(message, field, i, absl::StrCat(path, "[", i, "]"));
      }
    }
  }

  // The key is untrusted text, so it is quoted in a path.
  void CheckEntry(const Message& entry, const std::string& path) {
    const FieldDescriptor& key = *entry.GetDescriptor()->map_key();
    std::string name = "key";
    if (key.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      const std::string text = entry.GetReflection()->GetString(entry, &key);
      if (look_ == Look::kSizes && text.size() > kMaxStringBytes) {
        return AddLength(path + ".key", text, kMaxStringBytes);
      }
      name = OneLine(text, kMaxNameBytes);
    }
    CheckValue(entry, *entry.GetDescriptor()->map_value(), -1, absl::StrCat(path, ".", name));
  }

  // `index` is negative if the field is not a list.
  void CheckValue(const Message& message, const FieldDescriptor& field, int index,
                  const std::string& path) {
    const Reflection& reflection = *message.GetReflection();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const Message& inner = index < 0 ? reflection.GetMessage(message, &field)
                                       : reflection.GetRepeatedMessage(message, &field, index);
      const bool is_job = inner.GetDescriptor()->name() == "JobSpec";
      if (is_job && look_ == Look::kEnums) return;
      return Walk(inner, is_job ? "" : path + ".");
    }
    if (look_ == Look::kEnums) {
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return;
      const int number = index < 0 ? reflection.GetEnumValue(message, &field)
                                   : reflection.GetRepeatedEnumValue(message, &field, index);
      if (field.enum_type()->FindValueByNumber(number) != nullptr) return;
      return Add(path, absl::StrCat(number), ShortEnumNames(*field.enum_type()));
    }
    if (field.type() != FieldDescriptor::TYPE_STRING) return;
    std::string scratch;
    const std::string& text =
        index < 0 ? reflection.GetStringReference(message, &field, &scratch)
                  : reflection.GetRepeatedStringReference(message, &field, index, &scratch);
    const size_t most = field.name() == "page_token" ? kMaxTokenBytes : kMaxStringBytes;
    if (text.size() > most) AddLength(path, text, most);
  }

  void AddLength(const std::string& path, const std::string& text, size_t most) {
    Add(path, QuoteValue(text), absl::StrCat("at most ", most, " bytes"));
  }

  void Add(const std::string& path, std::string value, std::string accepted) {
    FieldError fault;
    fault.path = path;
    fault.value = std::move(value);
    fault.accepted = std::move(accepted);
    faults_.push_back(std::move(fault));
  }

  const Look look_;
  std::vector<FieldError> faults_;
};

}  // namespace

std::vector<FieldError> CheckSizes(const Message& message) {
  return LimitCheck(Look::kSizes).Check(message);
}

std::vector<FieldError> CheckEnums(const Message& message) {
  return LimitCheck(Look::kEnums).Check(message);
}

}  // namespace genesis
