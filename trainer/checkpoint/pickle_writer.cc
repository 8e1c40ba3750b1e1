#include "trainer/checkpoint/pickle_writer.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/formats/pickle_format.h"

namespace genesis {
namespace {

const char* StorageType(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "FloatStorage";
    case at::kDouble:
      return "DoubleStorage";
    case at::kHalf:
      return "HalfStorage";
    case at::kBFloat16:
      return "BFloat16Storage";
    case at::kLong:
      return "LongStorage";
    case at::kInt:
      return "IntStorage";
    case at::kShort:
      return "ShortStorage";
    case at::kChar:
      return "CharStorage";
    case at::kByte:
      return "ByteStorage";
    case at::kBool:
      return "BoolStorage";
    default:
      TORCH_CHECK(false, "a checkpoint cannot hold tensors of ", c10::toString(type));
  }
}

// The part of a storage that tensors of one type use, in elements.
struct Range {
  int64_t begin = std::numeric_limits<int64_t>::max();
  int64_t end = 0;
  std::string key;
};
using StorageKey = std::pair<const void*, at::ScalarType>;

StorageKey KeyOf(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.scalar_type()};
}

class Writer {
 public:
  PickledTree Write(const Value& root) {
    Measure(root);
    Put(kProtocol);
    Put('\x02');
    std::visit(*this, root.held);
    Put(kStop);
    return std::move(result_);
  }

  void operator()(std::monostate) { Put(kNone); }
  void operator()(bool boolean) { Put(boolean ? kNewTrue : kNewFalse); }
  void operator()(int64_t integer) {
    if (integer == static_cast<int32_t>(integer)) {
      Put(kBinInt);
      PutNumber(static_cast<int32_t>(integer));
    } else {
      Put(kLong1);
      Put('\x08');
      PutNumber(integer);
    }
  }
  void operator()(double number) {
    // The only big-endian number of the format.
    char bytes[sizeof(number)];
    std::memcpy(bytes, &number, sizeof(number));
    std::reverse(std::begin(bytes), std::end(bytes));
    Put(kBinFloat);
    result_.pickle.append(bytes, sizeof(bytes));
  }
  void operator()(const std::string& text) {
    if (Recall(text)) return;
    Put(kBinUnicode);
    PutNumber(static_cast<uint32_t>(text.size()));
    result_.pickle += text;
    Remember(text);
  }
  void operator()(const ValueList& list) {
    Put(kEmptyList);
    Put(kMark);
    for (const Value& item : list) std::visit(*this, item.held);
    Put(kAppends);
  }
  void operator()(const ValueTuple& tuple) {
    Put(kMark);
    for (const Value& item : tuple.items) std::visit(*this, item.held);
    Put(kTuple);
  }
  void operator()(const ValueDict& dict) {
    if (dict.attributes.empty()) {
      Put(kEmptyDict);
      return PutItems(dict.items);
    }
    PutGlobal("collections\nOrderedDict");
    Put(kEmptyTuple);
    Put(kReduce);
    PutItems(dict.items);
    Put(kEmptyDict);
    PutItems(dict.attributes);
    Put(kBuild);
  }
  // Writes torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, False, OrderedDict()).
  void operator()(const at::Tensor& tensor) {
    const Range& range = ranges_.at(KeyOf(tensor));
    PutGlobal("torch._utils\n_rebuild_tensor_v2");
    Put(kMark);
    PutStorage(tensor, range);
    (*this)(tensor.numel() == 0 ? int64_t{0} : tensor.storage_offset() - range.begin);
    PutIntegers(tensor.sizes());
    PutIntegers(tensor.strides());
    Put(kNewFalse);
    PutGlobal("collections\nOrderedDict");
    Put(kEmptyTuple);
    Put(kReduce);
    Put(kTuple);
    Put(kReduce);
  }

 private:
  // Finds the storages and the range in use of each, in tree order.
  void Measure(const Value& value) {
    if (const auto* const list = value.As<ValueList>()) {
      for (const Value& item : *list) Measure(item);
    } else if (const auto* const tuple = value.As<ValueTuple>()) {
      for (const Value& item : tuple->items) Measure(item);
    } else if (const auto* const dict = value.As<ValueDict>()) {
      for (const DictItem& item : dict->items) Measure(item.value);
    } else if (const auto* const tensor = value.As<at::Tensor>()) {
      TORCH_CHECK(tensor->device().is_cpu(), "a checkpoint holds tensors on the CPU only");
      Range& range = ranges_[KeyOf(*tensor)];
      if (tensor->numel() == 0) return;
      int64_t last = tensor->storage_offset();
      for (int64_t i = 0; i < tensor->dim(); ++i) last += (tensor->size(i) - 1) * tensor->stride(i);
      range.begin = std::min(range.begin, tensor->storage_offset());
      range.end = std::max(range.end, last + 1);
    }
  }

  // Writes the persistent ID ("storage", type, key, device, number of elements).
  void PutStorage(const at::Tensor& tensor, const Range& known) {
    Range& range = ranges_.at(KeyOf(tensor));
    const int64_t elements = range.end == 0 ? 0 : known.end - known.begin;
    if (range.key.empty()) {
      range.key = absl::StrCat(result_.storages.size());
      PickledTree::Storage& storage = result_.storages.emplace_back();
      storage.owner = tensor;
      if (elements > 0) {
        const int64_t size = tensor.element_size();
        storage.data = static_cast<const char*>(tensor.storage().data()) + range.begin * size;
        storage.size = static_cast<uint64_t>(elements * size);
      }
    }
    Put(kMark);
    (*this)(std::string("storage"));
    PutGlobal(std::string("torch\n") + StorageType(tensor.scalar_type()));
    (*this)(range.key);
    (*this)(std::string("cpu"));
    (*this)(elements);
    Put(kTuple);
    Put(kPersistentId);
  }

  void PutItems(const std::vector<DictItem>& items) {
    Put(kMark);
    for (const DictItem& item : items) {
      std::visit(*this, item.key);
      std::visit(*this, item.value.held);
    }
    Put(kSetItems);
  }

  void PutIntegers(at::IntArrayRef integers) {
    Put(kMark);
    for (const int64_t integer : integers) (*this)(integer);
    Put(kTuple);
  }

  // Writes a global. `name` is the module and the name with a line break between.
  void PutGlobal(const std::string& name) {
    // The zero byte distinguishes the global from a string with the same text.
    const std::string key = name + '\0';
    if (Recall(key)) return;
    Put(kGlobal);
    result_.pickle += name + "\n";
    Remember(key);
  }

  void Put(char byte) { result_.pickle.push_back(byte); }
  void Put(PickleOpcode opcode) { Put(static_cast<char>(opcode)); }
  template <typename T>
  void PutNumber(T number) {
    result_.pickle.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }

  // Writes a reference to a text that was written before; returns false if it was not.
  bool Recall(const std::string& text) {
    const auto found = memory_.find(text);
    if (found == memory_.end()) return false;
    Put(kLongBinGet);
    PutNumber(found->second);
    return true;
  }
  void Remember(const std::string& text) {
    const auto id = static_cast<uint32_t>(memory_.size());
    memory_.emplace(text, id);
    Put(kLongBinPut);
    PutNumber(id);
  }

  PickledTree result_;
  std::map<StorageKey, Range> ranges_;
  std::map<std::string, uint32_t> memory_;
};

}  // namespace

PickledTree PickleTree(const Value& root) { return Writer().Write(root); }

}  // namespace genesis
