#pragma once

#include <string>
#include <vector>

#include "base/exit_code.h"
#include "cli/commands/arguments.h"
#include "cli/session.h"

namespace genesis::cli {

// The word with which the scripts of the shells call genesisctl: __complete WORD..., where the last
// word is the one to complete.
inline constexpr char kCompleteCommand[] = "__complete";

// The candidates for a word.
struct Completion {
  std::vector<std::string> candidates;
  bool files = false;
  // "JOB", "SWEEP", "CHECKPOINT" or "WORKER": identifiers that the daemon knows; "" for none.
  std::string identifiers;
};

// Returns the candidates for the last of `words`, from the command table.
Completion Complete(const std::vector<std::string>& words);

// Prints the candidates that start with the last word, one per line. Includes the daemon's
// identifiers unless it does not respond within a second. Prints ":files" if file names are
// accepted.
void PrintCompletion(const std::vector<std::string>& words, Session& session);

// Prints the script for bash, zsh or fish.
ExitCode RunCompletion(const Arguments& arguments, Session& session);

}  // namespace genesis::cli
