#include "trainer/data/portable_math.h"

#include <cmath>

namespace genesis {
namespace {

constexpr double kLn2 = 0.6931471805599453;
constexpr double kSqrt2 = 1.4142135623730951;

// Returns e^x. Requires 0 <= x <= 64.
double Exp(double x) {
  const double power = std::floor(x / kLn2 + 0.5);
  const double rest = x - power * kLn2;
  double sum = 1;
  // Taylor; |rest| < 0.35, so the next term is below 1e-17.
  for (int n = 14; n >= 1; --n) sum = 1 + sum * rest / n;
  return std::ldexp(sum, static_cast<int>(power));
}

}  // namespace

double PortableTanh(double x) {
  const double size = std::fabs(x);
  const double value = size > 20 ? 1.0 : 1 - 2 / (Exp(2 * size) + 1);
  return x < 0 ? -value : value;
}

double PortableLog2(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 1 / kSqrt2) {
    mantissa *= 2;
    --exponent;
  }
  // ln(m) = 2 artanh((m - 1) / (m + 1)); the argument is below 0.172.
  const double s = (mantissa - 1) / (mantissa + 1);
  double sum = 0;
  for (int n = 21; n >= 1; n -= 2) sum = sum * s * s + 1.0 / n;
  return exponent + 2 * s * sum / kLn2;
}

}  // namespace genesis
