#include "trainer/formats/pickle_reader.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "trainer/formats/pickle_calls.h"
#include "trainer/formats/pickle_format.h"

namespace genesis {
namespace {

// The stack machine that executes a pickle. After an error it continues with empty values until the
// end of the step. Run returns the first error.
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
  // Maximum number of values, enough for about 200,000 tensors. Bounds memory for small files.
  static constexpr size_t kMaxValues = 4'000'000;

  void Step() {
    const auto opcode = static_cast<unsigned char>(Byte());
    if (!status_.ok() || Scalar(opcode) || Container(opcode) || Memory(opcode)) return;
    switch (opcode) {
      case kProtocol:
        if (const int version = Byte(); version < 2 || version > 5) {
          Refuse(absl::StrCat("has pickle protocol ", version, "; accepted: 2 to 5"));
        }
        return;
      case kFrame:
        // The length of the next frame, for readers that read ahead.
        Number<uint64_t>();
        return;
      case kStop:
        stopped_ = true;
        return;
      case kGlobal: {
        const std::string module = Line();
        return PushGlobal(module, Line());
      }
      case kStackGlobal:
        return PushStackGlobal();
      case kPersistentId:
        return PushStorage();
      case kReduce:
        return Call();
      case kBuild:
        // Attributes of an ordered dict (a Python state dict has _metadata) are ignored.
        Pop();
        Top<PickleDict>();
        return;
      default:
        return Refuse(absl::StrCat("uses pickle opcode 0x", absl::Hex(opcode, absl::kZeroPad2),
                                   Where(),
                                   "; accepted: what torch.save writes for tensors, "
                                   "dicts, lists, numbers and strings"));
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
        return PushLong(static_cast<size_t>(Byte()));
      case kLong4:
        return PushLong(Number<uint32_t>());
      case kBinFloat:
        return PushFloat();
      case kBinUnicode:
        return Push(Take(Number<uint32_t>()));
      case kShortBinUnicode:
        return Push(Take(static_cast<size_t>(Byte())));
      case kBinUnicode8:
        return Push(Take(Number<uint64_t>()));
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
      case kMemoize:
        return Remember(static_cast<uint32_t>(memory_.size()));
      case kBinGet:
        return Recall(static_cast<uint32_t>(Byte()));
      case kLongBinGet:
        return Recall(Number<uint32_t>());
      default:
        return false;
    }
  }

  // Returns " in entry model.weight": the keys of the dicts that are being filled.
  std::string Where() const {
    std::string path;
    for (size_t at = 0; at + 1 < stack_.size();) {
      const bool is_dict = stack_[at] != kMarkItem && stack_[at]->As<PickleDict>() != nullptr;
      if (!is_dict) {
        ++at;
        continue;
      }
      // One key, or a mark followed by key, value, key, value, ... up to the next mark.
      const bool marked = stack_[at + 1] == kMarkItem;
      size_t key = at + (marked ? 2 : 1);
      while (marked && key + 2 < stack_.size() && stack_[key + 1] != kMarkItem &&
             stack_[key + 2] != kMarkItem) {
        key += 2;
      }
      if (key >= stack_.size() || stack_[key] == kMarkItem) break;
      if (const auto* const text = stack_[key]->As<std::string>()) {
        absl::StrAppend(&path, path.empty() ? "" : ".", OneLine(*text, kMaxNameBytes));
      }
      at = key + 1;
    }
    return path.empty() ? "" : absl::StrCat(" in entry ", OneLine(path, 4 * kMaxNameBytes));
  }

  void Break(const std::string& what) {
    status_.Update(absl::DataLossError(
        absl::StrCat("the pickle is broken at byte ", at_, Where(), ": ", what)));
  }
  void Refuse(const std::string& what) { status_.Update(absl::InvalidArgumentError(what)); }

  // Returns the next `size` bytes; "" past the end.
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
    if (document_.values.size() >= kMaxValues) {
      Refuse(absl::StrCat("holds more than ", kMaxValues, " values; accepted: up to that many"));
      return true;
    }
    document_.values.push_back(PickleValue{std::move(value)});
    stack_.push_back(&document_.values.back());
    return true;
  }
  bool PushLong(size_t size) {
    const std::string raw = Take(size);
    if (raw.size() > sizeof(uint64_t)) {
      Refuse(absl::StrCat("holds an integer of ", raw.size(), " bytes", Where(),
                          "; accepted: at most 8"));
    }
    // Two's complement, little-endian, in the minimal number of bytes.
    uint64_t value = !raw.empty() && (raw.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, raw.data(), std::min(raw.size(), sizeof(value)));
    return Push(static_cast<int64_t>(value));
  }
  bool PushFloat() {
    // The only big-endian number of the format.
    const std::string raw = Take(sizeof(double));
    const std::string reversed(raw.rbegin(), raw.rend());
    double value = 0;
    std::memcpy(&value, reversed.data(), reversed.size());
    return Push(value);
  }

  // Pops the topmost value; returns an empty one if there is none.
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

  // Returns the container on top of the stack if it is a T.
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

  void PushGlobal(const std::string& module, const std::string& name) {
    const std::string full = absl::StrCat(module, ".", name);
    const std::optional<PickleGlobal> global = FindGlobal(full);
    if (global) {
      Push(*global);
    } else if (status_.ok()) {
      Refuse(absl::StrCat("wants to call ", OneLine(full, kMaxNameBytes), Where(),
                          "; accepted: tensors, dicts, lists, numbers and strings"));
    }
  }
  void PushStackGlobal() {
    const auto* const name = Pop()->As<std::string>();
    const auto* const module = Pop()->As<std::string>();
    if (name == nullptr || module == nullptr) return Break("a global has no name");
    PushGlobal(*module, *name);
  }
  // torch.save names the storage of a tensor by a persistent ID.
  void PushStorage() {
    const auto* const id = Pop()->As<PickleList>();
    const std::optional<PickleStorage> storage =
        id != nullptr ? BuildPickleStorage(*id) : std::nullopt;
    if (!storage) return Break("a storage is malformed");
    Push(*storage);
  }
  void Call() {
    const auto* const arguments = Pop()->As<PickleList>();
    const auto* const callee = Pop()->As<PickleGlobal>();
    if (arguments == nullptr || callee == nullptr) return Break("it calls what cannot be called");
    std::optional<PickleValue> result = CallPickleGlobal(*callee, *arguments);
    if (!result) return Break("a call has arguments that do not fit");
    Push(std::move(result->value));
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
