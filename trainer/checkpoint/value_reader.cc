#include "trainer/checkpoint/value_reader.h"

#include <c10/core/ScalarType.h>

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "base/text/text.h"
#include "trainer/checkpoint/element_scalar.h"

namespace genesis {
namespace {

std::string TypeName(at::ScalarType type) {
  const std::optional<ElementType> element = ToElementType(type);
  return element ? ElementTypeName(*element) : absl::AsciiStrToLower(c10::toString(type));
}

const DictItem* FindItem(const Value& value, const std::string& key) {
  const auto* const dict = value.As<ValueDict>();
  if (dict == nullptr) return nullptr;
  for (const DictItem& item : dict->items) {
    const auto* const name = std::get_if<std::string>(&item.key);
    if (name != nullptr && *name == key) return &item;
  }
  return nullptr;
}

const Value& None() {
  static const auto* const none = new Value();
  return *none;
}

}  // namespace

std::string DescribeValue(const Value& value) {
  if (const auto* const integer = value.As<int64_t>())
    return absl::StrCat("the integer ", *integer);
  if (const auto* const number = value.As<double>()) return absl::StrCat("the number ", *number);
  if (value.As<bool>() != nullptr) return "a bool";
  if (const auto* const text = value.As<std::string>()) {
    return absl::StrCat("the string ", QuoteValue(*text));
  }
  if (value.As<ValueList>() != nullptr) return "a list";
  if (value.As<ValueTuple>() != nullptr) return "a tuple";
  if (value.As<ValueDict>() != nullptr) return "a dict";
  if (const auto* const tensor = value.As<at::Tensor>()) {
    return absl::StrCat("a ", TypeName(tensor->scalar_type()), " tensor of shape [",
                        absl::StrJoin(tensor->sizes(), ", "), "]");
  }
  return "None";
}

ValueReader::ValueReader(std::string file, const Value& root)
    : shared_(std::make_shared<Shared>()), value_(&root) {
  shared_->file = std::move(file);
}

void ValueReader::Fault(const std::string& what) const {
  shared_->status.Update(absl::InvalidArgumentError(
      path_.empty() ? absl::StrCat(shared_->file, ": the file ", what)
                    : absl::StrCat(shared_->file, ": entry ", path_, " ", what)));
}

ValueReader ValueReader::Child(const std::string& name, const Value& value) const {
  // Names come from the file, so a message must neither contain line breaks nor fill a log.
  const std::string shown = OneLine(name, kMaxNameBytes);
  return {shared_, path_.empty() ? shown : absl::StrCat(path_, ".", shown), value};
}

ValueReader ValueReader::At(const std::string& key) const {
  const DictItem* const item = FindItem(*value_, key);
  const ValueReader child = Child(key, item != nullptr ? item->value : None());
  if (item == nullptr && value_->As<ValueDict>() != nullptr) child.Fault("is missing");
  if (item == nullptr) Get<ValueDict>("a dict");
  return child;
}

bool ValueReader::Has(const std::string& key) const {
  const DictItem* const item = FindItem(*value_, key);
  return item != nullptr && item->value.As<std::monostate>() == nullptr;
}

template <typename T>
const T* ValueReader::Get(const char* accepted) const {
  const T* const found = value_->As<T>();
  if (found == nullptr) {
    Fault(absl::StrCat("is ", DescribeValue(*value_), "; accepted: ", accepted));
  }
  return found;
}

int64_t ValueReader::Integer() const {
  const auto* const integer = Get<int64_t>("an integer");
  return integer != nullptr ? *integer : 0;
}

int64_t ValueReader::Integer(int64_t least) const {
  const int64_t integer = Integer();
  if (integer >= least) return integer;
  Fault(absl::StrCat("is ", integer, "; accepted: ", least, " or more"));
  return least;
}

double ValueReader::Number() const {
  if (const auto* const integer = value_->As<int64_t>()) return static_cast<double>(*integer);
  const auto* const number = Get<double>("a number");
  return number != nullptr ? *number : 0;
}

bool ValueReader::Boolean() const {
  const auto* const boolean = Get<bool>("a bool");
  return boolean != nullptr && *boolean;
}

std::string ValueReader::Text() const {
  const auto* const text = Get<std::string>("a string");
  return text != nullptr ? *text : "";
}

at::Tensor ValueReader::Tensor() const {
  const auto* const tensor = Get<at::Tensor>("a tensor");
  return tensor != nullptr ? *tensor : at::empty({0});
}

at::Tensor ValueReader::Tensor(at::ScalarType type) const {
  at::Tensor tensor = Tensor();
  if (tensor.scalar_type() != type && value_->As<at::Tensor>() != nullptr) {
    Fault(absl::StrCat("is ", DescribeValue(*value_), "; accepted: ", TypeName(type)));
  }
  return tensor;
}

at::Tensor ValueReader::TensorOrNone(at::ScalarType type) const {
  return value_->As<std::monostate>() != nullptr ? at::Tensor() : Tensor(type);
}

std::vector<ValueReader> ValueReader::Items() const {
  std::vector<ValueReader> readers;
  const auto* const tuple = value_->As<ValueTuple>();
  const ValueList* const list = tuple != nullptr ? &tuple->items : Get<ValueList>("a list");
  for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
    readers.push_back(Child(absl::StrCat(i), (*list)[i]));
  }
  return readers;
}

std::vector<std::pair<std::string, ValueReader>> ValueReader::Named() const {
  std::vector<std::pair<std::string, ValueReader>> named;
  const auto* const dict = Get<ValueDict>("a dict with strings as keys");
  for (size_t i = 0; dict != nullptr && i < dict->items.size(); ++i) {
    const auto* const name = std::get_if<std::string>(&dict->items[i].key);
    if (name == nullptr) {
      Fault(absl::StrCat("has the key ", std::get<int64_t>(dict->items[i].key),
                         "; accepted: strings"));
      break;
    }
    named.emplace_back(*name, Child(*name, dict->items[i].value));
  }
  return named;
}

std::vector<std::pair<int64_t, ValueReader>> ValueReader::Numbered() const {
  std::vector<std::pair<int64_t, ValueReader>> numbered;
  const auto* const dict = Get<ValueDict>("a dict with integers as keys");
  for (size_t i = 0; dict != nullptr && i < dict->items.size(); ++i) {
    const auto* const number = std::get_if<int64_t>(&dict->items[i].key);
    if (number == nullptr) {
      Fault(absl::StrCat("has the key ", QuoteValue(std::get<std::string>(dict->items[i].key)),
                         "; accepted: integers"));
      break;
    }
    numbered.emplace_back(*number, Child(absl::StrCat(*number), dict->items[i].value));
  }
  return numbered;
}

}  // namespace genesis
