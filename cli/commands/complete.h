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

// The words that may follow.
struct Completion {
  std::vector<std::string> candidates;
  bool files = false;
  // "JOB", "SWEEP", "CHECKPOINT" or "WORKER": identifiers that the daemon knows; "" for none.
  std::string identifiers;
};

// Returns what may stand for the last of `words`, from the command table.
Completion Complete(const std::vector<std::string>& words);

// Prints the candidates that begin as the last word does, one per line, with the daemon's
// identifiers; a daemon that does not answer within a second gives none. Prints ":files" if names
// of files are accepted.
void PrintCompletion(const std::vector<std::string>& words, Session& session);

// Prints the script for bash, zsh or fish.
ExitCode RunCompletion(const Arguments& arguments, Session& session);

}  // namespace genesis::cli
