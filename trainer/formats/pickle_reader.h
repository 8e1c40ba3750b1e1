#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/formats/element_type.h"

namespace genesis {

// The globals that a pickle may name to build a tensor or an ordered dict. Each selects a fixed
// rule of the reader and runs no code.
enum class PickleRule { kRebuildTensor, kRebuildParameter, kOrderedDict, kSize, kStorageType };
struct PickleGlobal {
  PickleRule rule = PickleRule::kStorageType;
  ElementType type = ElementType::kFloat32;  // Element type of kStorageType.
};
struct PickleStorage {
  std::string key;
  ElementType type = ElementType::kFloat32;
  int64_t elements = 0;
};

// A tensor as a pickle describes it. Its elements are in the record data/<storage>.
struct PickleTensor {
  PickleStorage storage;
  int64_t offset = 0;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct PickleValue;
struct PickleList {  // A list or a tuple.
  std::vector<const PickleValue*> items;
};
struct PickleDict {
  std::vector<std::pair<const PickleValue*, const PickleValue*>> items;
};

// None, bool, int, float, str, list or tuple, dict, or tensor. Globals and storages occur only as
// arguments of a tensor.
struct PickleValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, PickleList, PickleDict,
               PickleTensor, PickleGlobal, PickleStorage>
      value;

  // Returns entry `key` of a dict, or nullptr if there is none or this is not a dict.
  const PickleValue* Find(const std::string& key) const;
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&value);
  }
};

// A pickle in memory. Values point to each other; the document owns them all.
struct PickleDocument {
  std::deque<PickleValue> values;
  const PickleValue* root = nullptr;
};

// Reads the pickle of a checkpoint written by torch.save (protocols 2 to 5) or by this trainer.
// Supports only tensors, parameters, dicts, lists, tuples, numbers, strings, bool and None; runs no
// code. INVALID_ARGUMENT names anything else and its entry ("wants to call os.system in entry
// model.x"); DATA_LOSS for broken bytes.
absl::StatusOr<PickleDocument> ReadPickle(const std::string& bytes);

}  // namespace genesis
