// Prints docs/job_file.schema.json. A test fails if the checked-in file differs.
#include <iostream>

#include "config/job/job_schema.h"

int main() {
  std::cout << genesis::JobSchema();
  return std::cout.good() ? 0 : 1;
}
