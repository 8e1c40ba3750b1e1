#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/formats/element_type.h"

namespace genesis {

bool IsFloatingPoint(ElementType type);

// The element at `at`, which need not be aligned, as a number; bool gives 0 or 1.
double ElementValue(ElementType type, const char* at);

// Converts `count` elements; what float32 cannot hold becomes infinite.
void ToFloats(ElementType type, const char* from, int64_t count, float* to);

// First element of `count` that is NaN or infinite, or -1.
int64_t FirstNonFinite(ElementType type, const char* from, int64_t count);

// Where the element with this number in C order stands: "[3, 0, 17]".
std::string PlaceText(const std::vector<int64_t>& shape, int64_t element);

// "nan", "-inf", "0.25".
std::string NumberText(double value);

}  // namespace genesis
