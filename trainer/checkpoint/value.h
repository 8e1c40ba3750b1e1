#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace genesis {

struct Value;
struct DictItem;

using ValueList = std::vector<Value>;
struct ValueTuple {
  std::vector<Value> items;
};
// Items in insertion order, as in Python. A dict with attributes is written as an OrderedDict,
// which supports them; reading ignores them.
struct ValueDict {
  std::vector<DictItem> items;
  std::vector<DictItem> attributes;

  void Add(std::string key, Value value);
  void Add(int64_t key, Value value);
};

// A value of a checkpoint file: None, bool, int, float, str, list, tuple, dict or tensor. A tree
// without cycles; tensors may share their storage.
struct Value {
  using Held = std::variant<std::monostate, bool, int64_t, double, std::string, ValueList,
                            ValueTuple, ValueDict, at::Tensor>;

  Value() = default;
  Value(bool held_value) : held(held_value) {}     // NOLINT(google-explicit-constructor)
  Value(int64_t held_value) : held(held_value) {}  // NOLINT(google-explicit-constructor)
  Value(double held_value) : held(held_value) {}   // NOLINT(google-explicit-constructor)
  Value(std::string held_value);                   // NOLINT(google-explicit-constructor)
  Value(const char* held_value);                   // NOLINT(google-explicit-constructor)
  Value(ValueList held_value);                     // NOLINT(google-explicit-constructor)
  Value(ValueTuple held_value);                    // NOLINT(google-explicit-constructor)
  Value(ValueDict held_value);                     // NOLINT(google-explicit-constructor)
  Value(at::Tensor held_value);                    // NOLINT(google-explicit-constructor)

  template <typename T>
  const T* As() const {
    return std::get_if<T>(&held);
  }

  Held held;
};

using DictKey = std::variant<int64_t, std::string>;
struct DictItem {
  DictKey key;
  Value value;
};

// Inline because they need the complete types.
inline Value::Value(std::string held_value) : held(std::move(held_value)) {}
inline Value::Value(const char* held_value) : held(std::string(held_value)) {}
inline Value::Value(ValueList held_value) : held(std::move(held_value)) {}
inline Value::Value(ValueTuple held_value) : held(std::move(held_value)) {}
inline Value::Value(ValueDict held_value) : held(std::move(held_value)) {}
inline Value::Value(at::Tensor held_value) {
  // An undefined tensor is None.
  if (held_value.defined()) held = std::move(held_value);
}
inline void ValueDict::Add(std::string key, Value value) {
  items.push_back({std::move(key), std::move(value)});
}
inline void ValueDict::Add(int64_t key, Value value) { items.push_back({key, std::move(value)}); }

}  // namespace genesis
