#pragma once

#include <string>
#include <vector>

namespace genesis::cli {

// A finding of doctor about one thing.
struct Finding {
  enum class Level {
    kGood,
    kNote,     // Works, but whoever is on call would want to know.
    kProblem,  // Something does not work, or will not for long.
  };
  Level level = Level::kGood;
  std::string about;  // "gpu", "disk": what the checks of one thing have in common.
  std::string text;   // What is, with its figures.
  std::string fix;    // What to do; empty for kGood.
};

using Findings = std::vector<Finding>;

Finding Good(std::string about, std::string text);
Finding Note(std::string about, std::string text, std::string fix);
Finding Problem(std::string about, std::string text, std::string fix);

// "ok", "note" or "problem".
const char* LevelName(Finding::Level level);

}  // namespace genesis::cli
