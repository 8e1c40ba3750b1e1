#include "trainer/formats/element_value.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace genesis {
namespace {

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

float FromFloat16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Subnormal: a multiple of 2^-24, exact in float32.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace

bool IsFloatingPoint(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat64 ||
         type == ElementType::kFloat16 || type == ElementType::kBfloat16;
}

double ElementValue(ElementType type, const char* at) {
  switch (type) {
    case ElementType::kFloat32:
      return Load<float>(at);
    case ElementType::kFloat64:
      return Load<double>(at);
    case ElementType::kFloat16:
      return FromFloat16(Load<uint16_t>(at));
    case ElementType::kBfloat16:
      return FromBfloat16(Load<uint16_t>(at));
    case ElementType::kInt64:
      return static_cast<double>(Load<int64_t>(at));
    case ElementType::kInt32:
      return Load<int32_t>(at);
    case ElementType::kInt16:
      return Load<int16_t>(at);
    case ElementType::kInt8:
      return Load<int8_t>(at);
    case ElementType::kUint8:
      return Load<uint8_t>(at);
    case ElementType::kBool:
      return *at != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

void ToFloats(ElementType type, const char* from, int64_t count, float* to) {
  if (type == ElementType::kFloat32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const int64_t step = ElementSize(type);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(ElementValue(type, from + i * step));
  }
}

int64_t FirstNonFinite(ElementType type, const char* from, int64_t count) {
  if (!IsFloatingPoint(type)) return -1;
  const int64_t step = ElementSize(type);
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(ElementValue(type, from + i * step))) return i;
  }
  return -1;
}

std::string PlaceText(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0; element /= shape[i]) index[i] = element % shape[i];
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

std::string NumberText(double value) { return std::isnan(value) ? "nan" : absl::StrCat(value); }

}  // namespace genesis
