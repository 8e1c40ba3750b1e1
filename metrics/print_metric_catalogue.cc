// Prints docs/metrics.md. A test fails if the page in the tree differs.

#include <iostream>

#include "metrics/catalogue.h"

int main() {
  std::cout << genesis::MetricCatalogueAsMarkdown();
  return std::cout.good() ? 0 : 1;
}
