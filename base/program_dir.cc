#include "base/program_dir.h"

#include <filesystem>

namespace genesis {

std::string ProgramDir() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

}  // namespace genesis
