#pragma once

#include <optional>
#include <string>
#include <utility>

#include "trainer/formats/element_type.h"

namespace genesis {

// Names of element types in the header of a .safetensors file.
inline constexpr std::pair<const char*, ElementType> kSafetensorsTypes[] = {
    {"F64", ElementType::kFloat64}, {"F32", ElementType::kFloat32},
    {"F16", ElementType::kFloat16}, {"BF16", ElementType::kBfloat16},
    {"I64", ElementType::kInt64},   {"I32", ElementType::kInt32},
    {"I16", ElementType::kInt16},   {"I8", ElementType::kInt8},
    {"U8", ElementType::kUint8},    {"BOOL", ElementType::kBool}};

// Returns the type of a name; nullopt if no type has it.
inline std::optional<ElementType> SafetensorsType(const std::string& name) {
  for (const auto& [text, type] : kSafetensorsTypes) {
    if (name == text) return type;
  }
  return std::nullopt;
}

}  // namespace genesis
