#include "config/job/field_rules.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "genesis/training/v1/job.pb.h"

namespace genesis {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using training::v1::FieldRule;

namespace {

bool IsWhole(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;
}

// Returns the number as a double. Rounding above 2^53 is harmless: no rule has a bound that large.
double NumberIn(const Message& message, const FieldDescriptor& field) {
  const Reflection& fields = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return fields.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(fields.GetInt64(message, &field));
    default:
      return fields.GetDouble(message, &field);
  }
}

void SetNumber(Message& message, const FieldDescriptor& field, double value) {
  const Reflection& fields = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return fields.SetInt32(&message, &field, static_cast<int32_t>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return fields.SetInt64(&message, &field, static_cast<int64_t>(value));
    default:
      return fields.SetDouble(&message, &field, value);
  }
}

bool IsGiven(const Message& message, const FieldDescriptor& field) {
  const bool set = message.GetReflection()->HasField(message, &field);
  // HasField returns true for -0.0 in a field without presence.
  if (!set || field.has_presence() || field.enum_type() != nullptr) return set;
  return NumberIn(message, field) != 0;
}

bool IsAccepted(const FieldRule& rule, double value) {
  if (rule.has_besides() && value == rule.besides()) return true;
  return std::isfinite(value) && (!rule.has_least() || value >= rule.least()) &&
         (!rule.has_above() || value > rule.above()) &&
         (!rule.has_most() || value <= rule.most()) && (!rule.has_below() || value < rule.below());
}

// Formats a number as users write it in a job file: 1000000000000, not 1e12.
std::string Number(const FieldDescriptor& field, double value) {
  return IsWhole(field) ? absl::StrCat(static_cast<int64_t>(value)) : FormatNumber(value);
}

// Formats the value of the field. Reads int64 fields directly, because a double would round values
// above 2^53.
std::string ValueText(const Message& message, const FieldDescriptor& field) {
  const Reflection& fields = *message.GetReflection();
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64
             ? absl::StrCat(fields.GetInt64(message, &field))
             : Number(field, NumberIn(message, field));
}

std::string RangeText(const FieldDescriptor& field, const FieldRule& rule) {
  const char* const any = IsWhole(field) ? "" : "a finite number ";
  const auto number = [&field](double value) { return Number(field, value); };
  if (rule.has_least() && rule.has_most()) {
    return absl::StrCat(number(rule.least()), " to ", number(rule.most()));
  }
  if (rule.has_least() && rule.has_below()) {
    return absl::StrCat("at least ", number(rule.least()), " and below ", number(rule.below()));
  }
  if (rule.has_above() && rule.has_most()) {
    return absl::StrCat("above ", number(rule.above()), ", at most ", number(rule.most()));
  }
  if (rule.has_above() && rule.has_below()) {
    return absl::StrCat("above ", number(rule.above()), " and below ", number(rule.below()));
  }
  if (rule.has_least()) return absl::StrCat(any, ">= ", number(rule.least()));
  if (rule.has_above()) return absl::StrCat(any, "> ", number(rule.above()));
  return "";
}

void AppendRows(const Descriptor& type, const std::string& path, std::string& page) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field.name());
    const bool section = field.message_type() != nullptr && !field.is_map() &&
                         field.message_type()->file()->package() == type.file()->package();
    if (section) AppendRows(*field.message_type(), name + (field.is_repeated() ? "[]" : ""), page);
    const FieldRule* const rule = RuleOf(field);
    if (rule == nullptr) continue;
    absl::StrAppend(&page, "| `", name, "` | ", DefaultText(field), " | ", AcceptedText(field),
                    " | ", rule->unit(), " |\n");
  }
}

}  // namespace

const FieldRule* RuleOf(const FieldDescriptor& field) {
  return field.options().HasExtension(training::v1::rule)
             ? &field.options().GetExtension(training::v1::rule)
             : nullptr;
}

void FillDefaults(Message& message) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const FieldRule* const rule = RuleOf(field);
    if (rule == nullptr || IsGiven(message, field)) continue;
    if (rule->has_default_value()) {
      SetNumber(message, field, rule->default_value());
    } else if (!rule->default_name().empty()) {
      message.GetReflection()->SetEnum(&message, &field,
                                       field.enum_type()->FindValueByName(rule->default_name()));
    }
  }
}

void CheckRanges(const std::string& path, const Message& message, Faults& faults) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const FieldRule* const rule = RuleOf(field);
    if (rule == nullptr || field.enum_type() != nullptr || !IsGiven(message, field)) continue;
    const double value = NumberIn(message, field);
    if (IsAccepted(*rule, value)) continue;
    faults.Add(absl::StrCat(path, path.empty() ? "" : ".", field.name()), ValueText(message, field),
               AcceptedText(field));
  }
}

std::string AcceptedText(const FieldDescriptor& field) {
  const FieldRule* const rule = RuleOf(field);
  if (rule == nullptr) return "";
  std::string text = RangeText(field, *rule);
  if (rule->has_besides()) {
    absl::StrAppend(&text, ", or ", Number(field, rule->besides()), " for ", rule->besides_means());
  }
  return text;
}

std::string DefaultText(const FieldDescriptor& field) {
  const FieldRule* const rule = RuleOf(field);
  if (rule == nullptr) return "";
  if (rule->has_default_value()) return Number(field, rule->default_value());
  return rule->default_name().empty()
             ? ""
             : ShortEnumName(*field.enum_type()->FindValueByName(rule->default_name()));
}

std::string RuleText(const FieldDescriptor& field) {
  const FieldRule* const rule = RuleOf(field);
  if (rule == nullptr) return "";
  std::vector<std::string> sentences;
  const auto add = [&sentences](const char* what, const std::string& text) {
    if (!text.empty()) sentences.push_back(absl::StrCat(what, text, "."));
  };
  add("Default ", DefaultText(field));
  add("Accepted: ", AcceptedText(field));
  add("Unit: ", rule->unit());
  return absl::StrJoin(sentences, " ");
}

std::string JobFieldsPage() {
  std::string page =
      "# Numbers and choices of a job file\n\n"
      "Printed from the options of the fields in `proto/genesis/training/v1/` by "
      "`build/release/tools/print_job_fields`; a test fails when it is not current.\n"
      "0 always means *not given*. Where a default is empty it is 0, or follows from other fields: "
      "[job_file.md](job_file.md) says how.\n\n"
      "| field | default | accepted | unit |\n| --- | --- | --- | --- |\n";
  AppendRows(*training::v1::JobSpec::descriptor(), "", page);
  return page;
}

}  // namespace genesis
