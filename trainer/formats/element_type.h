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

// Returns the bytes of one element.
int64_t ElementSize(ElementType type);
// Returns "float32", "bool", ...: the names of NumPy and torch.
std::string ElementTypeName(ElementType type);

}  // namespace genesis
