#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/text/field_error.h"

namespace genesis {

// A value given for a setting, and its source.
struct GivenValue {
  std::string text;
  std::string source;  // E.g. "flag --x", "environment X", "file f:line".
  std::string name;    // As the user wrote it: "--x", "X", "grpc.listen".
  std::string file;    // Empty unless from a file.
  int line = 0;
  int column = 0;
};

// Keyed by setting. The values are in ascending precedence: YAML, environment, flag.
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

// Parses `--flag=value`, `--flag value`, and switches such as --help.
CommandLine ReadFlags(const std::vector<std::string>& args, std::vector<FieldError>& errors);

// Adds the values in the YAML file. `named_by` is the source of its path, for error messages.
void ReadSettingsFile(const std::string& path, const std::string& named_by, GivenValues& values,
                      std::vector<FieldError>& errors);

// Adds the value of each setting whose environment variable is set.
void ReadSettingsEnvironment(const Environment& environment, GivenValues& values);

}  // namespace genesis
