#include "base/text/message_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text/text.h"

namespace genesis {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMaxTextBytes = size_t{1} << 20U;
constexpr size_t kMinTextBytes = 64;

class TextBounds {
 public:
  void Apply(Message& message) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->type() == FieldDescriptor::TYPE_STRING) {
        ApplyToStrings(message, *field);
      } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
        continue;
      } else if (!field->is_repeated()) {
        Apply(*reflection.MutableMessage(&message, field));
      } else {
        for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
          Apply(*reflection.MutableRepeatedMessage(&message, field, i));
        }
      }
    }
  }

 private:
  void ApplyToStrings(Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    if (!field.is_repeated()) {
      reflection.SetString(&message, &field, Bound(reflection.GetString(message, &field)));
      return;
    }
    int kept = 0;
    for (; kept < reflection.FieldSize(message, &field) && left_ > 0; ++kept) {
      reflection.SetRepeatedString(&message, &field, kept,
                                   Bound(reflection.GetRepeatedString(message, &field, kept)));
    }
    while (reflection.FieldSize(message, &field) > kept) reflection.RemoveLast(&message, &field);
  }

  std::string Bound(const std::string& text) {
    const size_t most = std::max(std::min(kMaxMessageBytes, left_), kMinTextBytes);
    std::string bounded = BoundedText(text, most);
    left_ -= std::min(left_, bounded.size());
    return bounded;
  }

  size_t left_ = kMaxTextBytes;
};

}  // namespace

void BoundTexts(Message& message) { TextBounds().Apply(message); }

}  // namespace genesis
