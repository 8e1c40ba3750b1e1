#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// A finding of doctor about one thing.
struct Finding {
  enum class Level {
    kGood,
    kNote,     // Works, but the operator should know.
    kProblem,  // Something does not work, or will not for long.
  };
  Level level = Level::kGood;
  std::string about;  // "gpu", "disk": shared by the checks of one thing.
  std::string text;   // The finding, with its numbers.
  std::string fix;    // The fix; empty for kGood.
};

using Findings = std::vector<Finding>;

Finding Good(std::string about, std::string text);
Finding Note(std::string about, std::string text, std::string fix);
Finding Problem(std::string about, std::string text, std::string fix);

// "ok", "note" or "problem".
const char* LevelName(Finding::Level level);

}  // namespace genesis::cli
