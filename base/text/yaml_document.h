#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/text/field_error.h"
#include "yaml-cpp/yaml.h"

namespace genesis {

// Position of a key or value, 1-based.
struct Place {
  int line = 0;
  int column = 0;
};
Place PlaceOf(const YAML::Node& node);

// Returns the content of a text file of at most 1 MiB. NOT_FOUND, PERMISSION_DENIED or
// INVALID_ARGUMENT, with the path in the message.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// Returns the root mapping of `text`, or a null node if the text holds only comments. Returns
// nullopt after adding an error if the text is not UTF-8, not YAML or more than one document, or if
// its root is not a mapping.
std::optional<YAML::Node> LoadYamlMapping(const std::string& text, std::vector<FieldError>& errors);

// Describes `node` in an error message: its kind, or its text in quotes.
std::string DescribeYaml(const YAML::Node& node);

}  // namespace genesis
