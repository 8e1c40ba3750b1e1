#include "client/contexts.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files/durable_file.h"
#include "base/text/field_error.h"
#include "base/text/nearest.h"
#include "base/text/yaml_document.h"

namespace genesis {
namespace {

void AddError(const YAML::Node& node, const std::string& path, const std::string& sentence,
              std::vector<FieldError>& errors) {
  const Place place = PlaceOf(node);
  errors.push_back({.path = path,
                    .value = {},
                    .accepted = sentence,
                    .line = place.line,
                    .column = place.column});
}

DaemonAddress ReadAddress(const YAML::Node& mapping, const std::string& path,
                          std::vector<FieldError>& errors) {
  DaemonAddress address;
  if (!mapping.IsMap()) {
    AddError(mapping, path, "not a group; give it a server", errors);
    return address;
  }
  for (const auto& entry : mapping) {
    const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const AddressMember* member =
        std::find_if(std::begin(kAddressMembers), std::end(kAddressMembers),
                     [&name](const AddressMember& each) { return name == each.name; });
    if (member == std::end(kAddressMembers) || !entry.second.IsScalar()) {
      AddError(entry.first, path,
               "accepted: server, token_file, tls_ca, tls_cert and tls_key, each a text", errors);
    } else {
      address.*(member->value) = entry.second.Scalar();
    }
  }
  return address;
}

}  // namespace

std::string ContextsFile(const Environment& environment) {
  std::filesystem::path folder = environment("XDG_CONFIG_HOME").value_or("");
  const std::string home = environment("HOME").value_or("");
  if (folder.empty() && !home.empty()) folder = std::filesystem::path(home) / ".config";
  return folder.empty() ? "" : (folder / "genesis" / "contexts.yaml").string();
}

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  Contexts contexts;
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (absl::IsNotFound(text.status())) return contexts;
  if (!text.ok()) return text.status();
  std::vector<FieldError> errors;
  const std::optional<YAML::Node> root = LoadYamlMapping(*text, errors);
  if (root.has_value()) {
    for (const auto& entry : *root) {
      const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "";
      if (name == "current" && entry.second.IsScalar()) {
        contexts.current = entry.second.Scalar();
      } else if (name == "contexts" && entry.second.IsMap()) {
        for (const auto& each : entry.second) {
          const std::string daemon = each.first.IsScalar() ? each.first.Scalar() : "";
          contexts.daemons[daemon] = ReadAddress(each.second, "contexts." + daemon, errors);
        }
      } else {
        AddError(entry.first, "", "accepted: current, a name, and contexts, a group", errors);
      }
    }
  }
  if (!errors.empty()) return ToStatus(errors, path);
  return contexts;
}

std::string UnknownContext(const std::string& name, const Contexts& contexts) {
  std::vector<std::string> names;
  for (const auto& [known, address] : contexts.daemons) names.push_back(known);
  const std::string nearest = Nearest(name, names);
  return absl::StrCat(
      QuoteValue(name), ": unknown context; ",
      nearest.empty() ? absl::StrCat("accepted: ", names.empty() ? "none, because none is stored"
                                                                 : absl::StrJoin(names, ", "))
                      : absl::StrCat("did you mean ", nearest, "?"));
}

absl::Status WriteContexts(const Contexts& contexts, const std::string& path) {
  YAML::Node root;
  root["current"] = contexts.current;
  for (const auto& [name, address] : contexts.daemons) {
    for (const AddressMember& member : kAddressMembers) {
      const std::string& value = address.*(member.value);
      if (!value.empty()) root["contexts"][name][member.name] = value;
    }
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat(path, ": its folder cannot be created: ", error.message()));
  }
  return WriteDurably(path, absl::StrCat(YAML::Dump(root), "\n"));
}

}  // namespace genesis
