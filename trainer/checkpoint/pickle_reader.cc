#include "trainer/checkpoint/pickle_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "trainer/checkpoint/pickle_format.h"

namespace genesis {
namespace {

// The T that item `index` of a list is, or nullptr.
template <typename T>
const T* ItemAs(const PickleList& list, size_t index) {
  return index < list.items.size() ? list.items[index]->As<T>() : nullptr;
}

std::optional<std::vector<int64_t>> Integers(const PickleList* list) {
  if (list == nullptr) return std::nullopt;
  std::vector<int64_t> integers;
  for (size_t i = 0; i < list->items.size(); ++i) {
    const auto* const integer = ItemAs<int64_t>(*list, i);
    if (integer == nullptr || *integer < 0) return std::nullopt;
    integers.push_back(*integer);
  }
  return integers;
}

// The stack machine that a pickle is a program for. After a fault it goes on with empty values
// until the step ends; the first fault is what Run returns.
class Machine {
 public:
  explicit Machine(const std::string& bytes) : bytes_(bytes) {}

  absl::StatusOr<PickleDocument> Run() {
    while (status_.ok() && !stopped_) Step();
    if (status_.ok() && (stack_.size() != 1 || stack_[0] == kMarkItem)) {
      Break("it does not end in one value");
    }
    if (!status_.ok()) return status_;
    document_.root = stack_[0];
    return std::move(document_);
  }

 private:
  static constexpr PickleValue* kMarkItem = nullptr;

  void Step() {
    const auto opcode = static_cast<unsigned char>(Byte());
    if (!status_.ok() || Scalar(opcode) || Container(opcode) || Memory(opcode)) return;
    switch (opcode) {
      case kProtocol:
        if (const int version = Byte(); version != 2) {
          Refuse(absl::StrCat("has pickle protocol ", version, "; accepted: 2"));
        }
        return;
      case kStop:
        stopped_ = true;
        return;
      case kGlobal:
        return PushGlobal();
      case kPersistentId:
        return PushStorage();
      case kReduce:
        return Call();
      case kBuild:
        // Attributes of an ordered dict (a Python state dict carries _metadata): of no use here.
        Pop();
        return;
      default:
        return Refuse(absl::StrCat("uses pickle opcode 0x", absl::Hex(opcode, absl::kZeroPad2),
                                   ", which no checkpoint needs"));
    }
  }

  bool Scalar(unsigned char opcode) {
    switch (opcode) {
      case kNone:
        return Push(std::monostate{});
      case kNewTrue:
        return Push(true);
      case kNewFalse:
        return Push(false);
      case kBinInt:
        return Push(int64_t{Number<int32_t>()});
      case kBinInt1:
        return Push(int64_t{Byte()});
      case kBinInt2:
        return Push(int64_t{Number<uint16_t>()});
      case kLong1:
        return PushLong();
      case kBinFloat:
        return PushFloat();
      case kBinUnicode:
        return Push(Take(Number<uint32_t>()));
      default:
        return false;
    }
  }

  bool Container(unsigned char opcode) {
    switch (opcode) {
      case kMark:
        stack_.push_back(kMarkItem);
        return true;
      case kEmptyDict:
        return Push(PickleDict{});
      case kEmptyList:
      case kEmptyTuple:
        return Push(PickleList{});
      case kTuple1:
      case kTuple2:
      case kTuple3:
        return Push(PickleList{PopItems(static_cast<size_t>(opcode) - kTuple1 + 1)});
      case kTuple:
        return Push(PickleList{PopToMark()});
      case kAppend:
        return Append(PopItems(1));
      case kAppends:
        return Append(PopToMark());
      case kSetItem:
        return SetItems(PopItems(2));
      case kSetItems:
        return SetItems(PopToMark());
      default:
        return false;
    }
  }

  bool Memory(unsigned char opcode) {
    switch (opcode) {
      case kBinPut:
        return Remember(static_cast<uint32_t>(Byte()));
      case kLongBinPut:
        return Remember(Number<uint32_t>());
      case kBinGet:
        return Recall(static_cast<uint32_t>(Byte()));
      case kLongBinGet:
        return Recall(Number<uint32_t>());
      default:
        return false;
    }
  }

  void Break(const std::string& what) {
    status_.Update(absl::DataLossError(absl::StrCat("the pickle is broken: ", what)));
  }
  void Refuse(const std::string& what) { status_.Update(absl::InvalidArgumentError(what)); }

  // The next `size` bytes; "" past the end.
  std::string Take(size_t size) {
    if (size > bytes_.size() - at_) {
      Break("it is cut off");
      return "";
    }
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  template <typename T>
  T Number() {
    T value{};
    const std::string raw = Take(sizeof(T));
    std::memcpy(&value, raw.data(), raw.size());
    return value;
  }
  int Byte() { return Number<uint8_t>(); }
  std::string Line() {
    const size_t end = std::min(bytes_.find('\n', at_), bytes_.size());
    std::string line = Take(end - at_);
    Take(1);
    return line;
  }

  template <typename T>
  bool Push(T value) {
    document_.values.push_back(PickleValue{std::move(value)});
    stack_.push_back(&document_.values.back());
    return true;
  }
  bool PushLong() {
    const std::string raw = Take(static_cast<size_t>(Byte()));
    if (raw.size() > sizeof(uint64_t)) Refuse("holds an integer beyond 64 bits");
    // Two's complement, little-endian, as short as possible.
    uint64_t value = !raw.empty() && (raw.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, raw.data(), std::min(raw.size(), sizeof(value)));
    return Push(static_cast<int64_t>(value));
  }
  bool PushFloat() {
    // The one big-endian number of the format.
    const std::string raw = Take(sizeof(double));
    const std::string reversed(raw.rbegin(), raw.rend());
    double value = 0;
    std::memcpy(&value, reversed.data(), reversed.size());
    return Push(value);
  }

  // The topmost value, taken off; an empty one where there is none.
  const PickleValue* Pop() {
    static const PickleValue* const none = new PickleValue();
    if (stack_.empty() || stack_.back() == kMarkItem) {
      Break("a value is missing");
      return none;
    }
    const PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<const PickleValue*> PopItems(size_t count) {
    std::vector<const PickleValue*> items(count);
    for (size_t i = count; i-- > 0;) items[i] = Pop();
    return items;
  }
  std::vector<const PickleValue*> PopToMark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), kMarkItem);
    std::vector<const PickleValue*> items(mark.base(), stack_.end());
    if (mark == stack_.rend()) {
      Break("a mark is missing");
    } else {
      stack_.erase(mark.base() - 1, stack_.end());
    }
    return items;
  }

  // The container on top of the stack, when it is a T.
  template <typename T>
  T* Top() {
    PickleValue* const top = stack_.empty() ? kMarkItem : stack_.back();
    T* const container = top != kMarkItem ? std::get_if<T>(&top->value) : nullptr;
    if (container == nullptr) Break("an item belongs to no container");
    return container;
  }
  bool Append(const std::vector<const PickleValue*>& items) {
    if (PickleList* const list = Top<PickleList>()) {
      list->items.insert(list->items.end(), items.begin(), items.end());
    }
    return true;
  }
  bool SetItems(const std::vector<const PickleValue*>& items) {
    if (items.size() % 2 != 0) Break("a dict holds a key without a value");
    PickleDict* const dict = Top<PickleDict>();
    for (size_t i = 0; dict != nullptr && i + 1 < items.size(); i += 2) {
      dict->items.emplace_back(items[i], items[i + 1]);
    }
    return true;
  }

  bool Remember(uint32_t id) {
    if (stack_.empty() || stack_.back() == kMarkItem) {
      Break("it remembers what is not there");
    } else {
      memory_[id] = stack_.back();
    }
    return true;
  }
  bool Recall(uint32_t id) {
    const auto found = memory_.find(id);
    if (found == memory_.end()) {
      Break("it recalls what was never remembered");
    } else {
      stack_.push_back(found->second);
    }
    return true;
  }

  void PushGlobal() {
    const std::string module = Line();
    const std::string name = absl::StrCat(module, ".", Line());
    const std::optional<PickleGlobal> global = FindGlobal(name);
    if (global) {
      Push(*global);
    } else if (status_.ok()) {
      Refuse(absl::StrCat("wants to call ", name,
                          "; accepted: tensors, dicts, lists, numbers and strings"));
    }
  }
  // ("storage", type, key, device, number of elements)
  void PushStorage() {
    const auto* const id = Pop()->As<PickleList>();
    if (id == nullptr) return Break("a storage is malformed");
    const auto* const type = ItemAs<PickleGlobal>(*id, 1);
    const auto* const key = ItemAs<std::string>(*id, 2);
    const auto* const elements = ItemAs<int64_t>(*id, 4);
    if (type == nullptr || key == nullptr || elements == nullptr || *elements < 0) {
      return Break("a storage is malformed");
    }
    Push(PickleStorage{.key = *key, .type = type->type, .elements = *elements});
  }
  void Call() {
    const auto* const arguments = Pop()->As<PickleList>();
    const auto* const callee = Pop()->As<PickleGlobal>();
    if (arguments == nullptr || callee == nullptr) return Break("it calls what cannot be called");
    if (callee->rule == PickleRule::kRebuildTensor) return PushTensor(*arguments);
    if (callee->rule == PickleRule::kOrderedDict && arguments->items.empty()) {
      Push(PickleDict{});
      return;
    }
    // (tensor, requires_grad, hooks)
    const auto* const tensor = ItemAs<PickleTensor>(*arguments, 0);
    if (callee->rule != PickleRule::kRebuildParameter || tensor == nullptr) {
      return Break("a call has arguments that do not fit");
    }
    Push(*tensor);
  }
  // (storage, offset, sizes, strides, requires_grad, hooks)
  void PushTensor(const PickleList& arguments) {
    const auto* const storage = ItemAs<PickleStorage>(arguments, 0);
    const auto* const offset = ItemAs<int64_t>(arguments, 1);
    const auto sizes = Integers(ItemAs<PickleList>(arguments, 2));
    const auto strides = Integers(ItemAs<PickleList>(arguments, 3));
    if (storage == nullptr || offset == nullptr || *offset < 0 || !sizes || !strides ||
        sizes->size() != strides->size()) {
      return Break("a tensor is malformed");
    }
    Push(
        PickleTensor{.storage = *storage, .offset = *offset, .sizes = *sizes, .strides = *strides});
  }

  const std::string& bytes_;
  size_t at_ = 0;
  bool stopped_ = false;
  absl::Status status_;
  PickleDocument document_;
  std::vector<PickleValue*> stack_;
  std::map<uint32_t, PickleValue*> memory_;
};

}  // namespace

const PickleValue* PickleValue::Find(const std::string& key) const {
  const auto* const dict = As<PickleDict>();
  if (dict == nullptr) return nullptr;
  for (const auto& [name, entry] : dict->items) {
    const auto* const text = name->As<std::string>();
    if (text != nullptr && *text == key) return entry;
  }
  return nullptr;
}

absl::StatusOr<PickleDocument> ReadPickle(const std::string& bytes) { return Machine(bytes).Run(); }

}  // namespace genesis
