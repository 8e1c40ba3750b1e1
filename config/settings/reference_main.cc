// Writes docs/reference.md and docs/genesisd.schema.json. Usage: genesis_reference FOLDER.
#include <cstdio>
#include <fstream>
#include <string>

#include "base/exit_code.h"
#include "config/settings/reference.h"
#include "config/settings/schema.h"

namespace {

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file.good()) std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
  return file.good();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: genesis_reference FOLDER\n");
    return genesis::ToInt(genesis::ExitCode::kUsage);
  }
  const std::string folder = argv[1];
  const bool page = Write(folder + "/reference.md", genesis::ReferencePage());
  const bool schema = Write(folder + "/genesisd.schema.json", genesis::SettingsSchema());
  return genesis::ToInt(page && schema ? genesis::ExitCode::kOk : genesis::ExitCode::kFailure);
}
