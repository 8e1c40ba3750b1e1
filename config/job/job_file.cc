#include "config/job/job_file.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

}  // namespace

absl::StatusOr<JobSpec> ParseJobFile(const std::string& yaml, const std::string& file) {
  std::vector<FieldError> errors;
  const std::optional<YAML::Node> root = LoadYamlMapping(yaml, errors);
  if (!root.has_value()) return ToStatus(errors, file);
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
  Sort(reading.errors);
  return ToStatus(reading.errors, file);
}

absl::StatusOr<JobSpec> ReadJobFile(const std::string& path) {
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return text.status();
  return ParseJobFile(*text, path);
}

}  // namespace genesis
