#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// The result of a check of doctor.
struct Finding {
  enum class Level {
    kGood,
    kNote,     // Works, but with a caveat.
    kProblem,  // Does not work, or soon will not.
  };
  Level level = Level::kGood;
  std::string about;  // E.g. "gpu", "storage"; several findings may share it.
  std::string text;   // The finding, with its numbers.
  std::string fix;    // How to fix it; empty for kGood.
};

using Findings = std::vector<Finding>;

Finding Good(std::string about, std::string text);
Finding Note(std::string about, std::string text, std::string fix);
Finding Problem(std::string about, std::string text, std::string fix);

// Returns "ok", "note" or "problem".
const char* LevelName(Finding::Level level);

}  // namespace genesis::cli
