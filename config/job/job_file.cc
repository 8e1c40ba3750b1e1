#include "config/job/job_file.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/text.h"
#include "config/job/job_spec.h"
#include "config/job/yaml_to_message.h"

namespace genesis {
namespace {

using training::v1::JobSpec;

// Returns true if an error was reported for `path`, a field below it or a group above it.
bool AlreadyReported(const std::string& path, const std::set<std::string>& faulty) {
  return std::any_of(faulty.begin(), faulty.end(), [&path](const std::string& other) {
    return path == other || absl::StartsWith(path, other + ".") ||
           absl::StartsWith(other, path + ".");
  });
}

// Sets the location of `error` to that of its field, or of the innermost enclosing group.
void Locate(const YamlReading& reading, FieldError& error) {
  for (std::string path = error.path; !path.empty();) {
    const auto place = reading.places.find(path);
    if (place != reading.places.end()) {
      error.line = place->second.line;
      error.column = place->second.column;
      return;
    }
    const size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
}

// Sorts by position in the file. Errors without a position come last.
void Sort(std::vector<FieldError>& errors) {
  std::stable_sort(errors.begin(), errors.end(), [](const FieldError& a, const FieldError& b) {
    if ((a.line == 0) != (b.line == 0)) return b.line == 0;
    return std::tie(a.line, a.column) < std::tie(b.line, b.column);
  });
}

// "training.max_steps=100" of a command line.
struct Override {
  std::string text;
  std::string path;
};

FieldError OverrideError(const Override& override, const std::string& sentence) {
  FieldError error;
  error.file = OneLine(override.text, kMaxNameBytes);
  error.accepted = sentence;
  return error;
}

// Sets the field in `root`, and creates the groups above it.
void Apply(const Override& override, YAML::Node root, std::vector<FieldError>& errors) {
  const std::vector<std::string> keys = absl::StrSplit(override.path, '.');
  const bool has_value = override.path.size() < override.text.size();
  if (!has_value || std::find(keys.begin(), keys.end(), "") != keys.end()) {
    errors.push_back(
        OverrideError(override, "not a field and a value; write it as training.max_steps=100"));
    return;
  }
  try {
    const std::string text = override.text.substr(override.path.size() + 1);
    const YAML::Node value = text.empty() ? YAML::Node("") : YAML::Load(text);
    YAML::Node group = root;
    for (size_t i = 0; i + 1 < keys.size(); ++i) {
      // Assignment to a node would change the document; reset makes it refer to another part.
      group.reset(group[keys[i]]);
    }
    group[keys.back()] = value;
  } catch (const YAML::Exception& e) {
    errors.push_back(OverrideError(override, absl::StrCat("cannot be set: ", e.msg)));
  }
}

// Names the override in an error of its field, in place of file and line, because the file does not
// have the value.
void NameOverride(const std::vector<Override>& overrides, FieldError& error) {
  for (const Override& override : overrides) {
    if (error.path != override.path && !absl::StartsWith(error.path, override.path + ".") &&
        !absl::StartsWith(error.path, override.path + "[")) {
      continue;
    }
    error.file = OneLine(override.text, kMaxNameBytes);
    error.line = 0;
  }
}

}  // namespace

absl::StatusOr<JobSpec> ParseJobFile(const std::string& yaml, const std::string& file,
                                     const std::vector<std::string>& overrides) {
  std::vector<FieldError> errors;
  const std::optional<YAML::Node> root = LoadYamlMapping(yaml, errors);
  if (!root.has_value()) return ToStatus(errors, file);
  std::vector<Override> parsed;
  for (const std::string& text : overrides) {
    Apply(parsed.emplace_back(Override{.text = text, .path = text.substr(0, text.find('='))}),
          *root, errors);
  }
  if (!errors.empty()) return ToStatus(errors, file);
  if (root->IsNull()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": empty; a job needs at least model, dataset and training"));
  }
  JobSpec spec;
  YamlReading reading = ReadYamlMessage(*root, spec);
  for (FieldError& error : ValidateJobSpec(spec)) {
    if (AlreadyReported(error.path, reading.faulty)) continue;
    Locate(reading, error);
    reading.errors.push_back(std::move(error));
  }
  if (reading.errors.empty()) return spec;
  for (FieldError& error : reading.errors) NameOverride(parsed, error);
  Sort(reading.errors);
  return ToStatus(reading.errors, file);
}

absl::StatusOr<JobSpec> ReadJobFile(const std::string& path,
                                    const std::vector<std::string>& overrides) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  return ParseJobFile(*text, path, overrides);
}

}  // namespace genesis
