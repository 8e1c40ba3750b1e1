#pragma once

#include <cstdint>
#include <string>

namespace genesis {

// Number formats of tensors in datasets and checkpoints.
enum class ElementType {
  kFloat32,
  kFloat64,
  kFloat16,
  kBfloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUint8,
  kBool
};

// Bytes of one element.
int64_t ElementSize(ElementType type);
// "float32", "bool", ...: NumPy's and torch's names.
std::string ElementTypeName(ElementType type);

}  // namespace genesis
