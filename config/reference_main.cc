// Writes docs/reference.md: genesis_reference FILE.
#include <cstdio>
#include <fstream>

#include "config/exit_code.h"
#include "config/reference.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: genesis_reference FILE\n");
    return genesis::ToInt(genesis::ExitCode::kUsage);
  }
  std::ofstream file(argv[1]);
  file << genesis::ReferencePage() << std::flush;
  if (file.good()) return genesis::ToInt(genesis::ExitCode::kOk);
  std::fprintf(stderr, "%s: cannot be written\n", argv[1]);
  return genesis::ToInt(genesis::ExitCode::kFailure);
}
