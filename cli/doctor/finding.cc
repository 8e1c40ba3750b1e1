#include "cli/doctor/finding.h"

#include <utility>

namespace genesis::cli {

Finding Good(std::string about, std::string text) {
  return {Finding::Level::kGood, std::move(about), std::move(text), ""};
}

Finding Note(std::string about, std::string text, std::string fix) {
  return {Finding::Level::kNote, std::move(about), std::move(text), std::move(fix)};
}

Finding Problem(std::string about, std::string text, std::string fix) {
  return {Finding::Level::kProblem, std::move(about), std::move(text), std::move(fix)};
}

const char* LevelName(Finding::Level level) {
  switch (level) {
    case Finding::Level::kGood:
      return "ok";
    case Finding::Level::kNote:
      return "note";
    default:
      return "problem";
  }
}

}  // namespace genesis::cli
