#pragma once

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <utility>

#include "trainer/formats/element_type.h"

namespace genesis {

// The element types of files and the corresponding types of torch.
inline constexpr std::array<std::pair<ElementType, at::ScalarType>, 10> kElementScalars = {{
    {ElementType::kFloat32, at::kFloat},
    {ElementType::kFloat64, at::kDouble},
    {ElementType::kFloat16, at::kHalf},
    {ElementType::kBfloat16, at::kBFloat16},
    {ElementType::kInt64, at::kLong},
    {ElementType::kInt32, at::kInt},
    {ElementType::kInt16, at::kShort},
    {ElementType::kInt8, at::kChar},
    {ElementType::kUint8, at::kByte},
    {ElementType::kBool, at::kBool},
}};

constexpr at::ScalarType ToScalarType(ElementType type) {
  for (const auto& [element, scalar] : kElementScalars) {
    if (element == type) return scalar;
  }
  return at::kFloat;
}

constexpr std::optional<ElementType> ToElementType(at::ScalarType type) {
  for (const auto& [element, scalar] : kElementScalars) {
    if (scalar == type) return element;
  }
  return std::nullopt;
}

}  // namespace genesis
