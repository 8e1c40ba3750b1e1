#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/formats/element_type.h"

namespace genesis {

bool IsFloatingPoint(ElementType type);

// Returns the element at `at`, which need not be aligned, as a number; a bool as 0 or 1.
double ElementValue(ElementType type, const char* at);

// Converts `count` elements. Values out of the range of float32 become infinite.
void ToFloats(ElementType type, const char* from, int64_t count, float* to);

// Returns the index of the first of `count` elements that is NaN or infinite, or -1.
int64_t FirstNonFinite(ElementType type, const char* from, int64_t count);

// Returns the position of the element with this number in C order: "[3, 0, 17]".
std::string PlaceText(const std::vector<int64_t>& shape, int64_t element);

// Returns a number as text for error messages: "nan", "-inf", "0.25".
std::string NumberText(double value);

}  // namespace genesis
