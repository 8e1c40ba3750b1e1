// Prints docs/job_fields.md. A test fails if the page in the tree differs.
#include <iostream>

#include "config/job/field_rules.h"

int main() {
  std::cout << genesis::JobFieldsPage();
  return std::cout.good() ? 0 : 1;
}
