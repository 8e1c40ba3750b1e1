#pragma once

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

}  // namespace genesis
