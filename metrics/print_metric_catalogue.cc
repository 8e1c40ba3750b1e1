// Prints docs/metrics.md. A test fails if the checked-in page differs.

#include <iostream>

#include "metrics/catalogue.h"

int main() {
  std::cout << genesis::MetricCatalogueAsMarkdown();
  return std::cout.good() ? 0 : 1;
}
