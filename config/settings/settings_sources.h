#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text/field_error.h"

namespace genesis {

// A value given to a setting, and its source.
struct GivenValue {
  std::string text;
  std::string source;  // "flag --x", "environment X", "file f:line".
  std::string name;    // Name as the user wrote it: "--x", "X", "grpc.listen".
  std::string file;    // Empty unless from a file.
  int line = 0;
  int column = 0;
};

// Keyed by setting. Values of a key are ordered by rising precedence: YAML, environment, flag.
using GivenValues = std::map<std::string, std::vector<GivenValue>>;

// The parsed command line.
struct CommandLine {
  std::map<std::string, GivenValue> flags;  // Keyed by setting, or "config". The last one wins.
  bool show_help = false;
  bool show_version = false;
  bool check_config = false;
  bool show_schema = false;
  bool insecure = false;
};

// Reads `--flag=value`, `--flag value`, and the switches such as --help.
CommandLine ReadFlags(const std::vector<std::string>& args, std::vector<FieldError>& errors);

// Adds the values of the YAML file at `path`. `named_by` is the source of the path, for messages.
void ReadSettingsFile(const std::string& path, const std::string& named_by, GivenValues& values,
                      std::vector<FieldError>& errors);

// Adds the values of every setting's environment variable that is set.
void ReadSettingsEnvironment(const Environment& environment, GivenValues& values);

}  // namespace genesis
