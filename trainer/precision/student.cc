#include "trainer/precision/student.h"

#include <algorithm>
#include <cmath>

namespace genesis {
namespace {

constexpr int kMaxTerms = 300;
constexpr double kPrecise = 1e-12;
constexpr double kTiny = 1e-300;

// Returns the regularized incomplete beta function, by its continued fraction (modified Lentz).
double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  // The fraction converges fast only on this side of the mean.
  if (x > (a + 1) / (a + b + 2)) return 1 - IncompleteBeta(b, a, 1 - x);
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x)) /
                       a;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double fraction = d;
  for (int m = 1; m <= kMaxTerms; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    fraction *= d * c;
    if (std::abs(d * c - 1) < kPrecise) break;
  }
  return front * fraction;
}

}  // namespace

double StudentTail(double t, double freedom) {
  const double half = IncompleteBeta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2;
  return t >= 0 ? half : 1 - half;
}

}  // namespace genesis
