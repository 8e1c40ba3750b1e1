// Prints docs/job_fields.md. A test fails if the checked-in page differs.
#include <iostream>

#include "config/job/field_rules.h"

int main() {
  std::cout << genesis::JobFieldsPage();
  return std::cout.good() ? 0 : 1;
}
