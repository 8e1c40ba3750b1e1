#include "trainer/formats/element_type.h"

namespace genesis {

int64_t ElementSize(ElementType type) {
  switch (type) {
    case ElementType::kFloat64:
    case ElementType::kInt64:
      return 8;
    case ElementType::kFloat32:
    case ElementType::kInt32:
      return 4;
    case ElementType::kFloat16:
    case ElementType::kBfloat16:
    case ElementType::kInt16:
      return 2;
    case ElementType::kInt8:
    case ElementType::kUint8:
    case ElementType::kBool:
      return 1;
  }
  return 1;
}

std::string ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt16:
      return "int16";
    case ElementType::kInt8:
      return "int8";
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kBool:
      return "bool";
  }
  return "";
}

}  // namespace genesis
