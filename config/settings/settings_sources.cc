#include "config/settings/settings_sources.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text/nearest.h"
#include "base/text/yaml_document.h"
#include "config/settings/settings_table.h"

namespace genesis {
namespace {

constexpr char kConfigFlag[] = "--config";

void AddSentence(std::string path, std::string sentence, std::vector<FieldError>& errors) {
  FieldError error;
  error.path = std::move(path);
  error.accepted = std::move(sentence);
  errors.push_back(std::move(error));
}

std::vector<std::string> AllFlags() {
  std::vector<std::string> flags = {kConfigFlag,      "--help",     "--version",
                                    "--check-config", "--insecure", "--print-config-schema"};
  for (const SettingRow& row : SettingsTable()) flags.push_back(FlagOf(row));
  return flags;
}

// Returns "config", the setting's key, or "" for an unknown flag.
std::string KeyOfFlag(const std::string& flag) {
  if (flag == kConfigFlag) return "config";
  const SettingRow* row = FindByFlag(flag);
  return row == nullptr ? "" : row->key;
}

void AddUnknownFlag(const std::string& argument, std::vector<FieldError>& errors) {
  if (!absl::StartsWith(argument, "-")) {
    AddSentence(QuoteValue(argument), "no flag; genesisd takes flags only, see genesisd --help",
                errors);
    return;
  }
  const std::string flag = argument.substr(0, argument.find('='));
  const std::string nearest = Nearest(flag, AllFlags());
  AddSentence(
      flag,
      absl::StrCat("unknown flag; ", nearest.empty() ? "see genesisd --help"
                                                     : absl::StrCat("did you mean ", nearest, "?")),
      errors);
}

// A reader of one mapping of the settings file. `prefix` is "" or, e.g., "grpc.".
class FileReader {
 public:
  FileReader(const std::string& file, GivenValues& values, std::vector<FieldError>& errors)
      : file_(file), values_(values), errors_(errors) {}

  void Read(const YAML::Node& mapping, const std::string& prefix) {
    std::map<std::string, int> first_line;
    for (const auto& entry : mapping) {
      if (!entry.first.IsScalar()) {
        Fault(entry.first, prefix.substr(0, prefix.find('.')), "",
              absl::StrCat("a key is ", DescribeYaml(entry.first), "; accepted: a name"));
        continue;
      }
      const std::string key = prefix + entry.first.Scalar();
      const int line = PlaceOf(entry.first).line;
      const auto [first, is_new] = first_line.emplace(key, line);
      if (!is_new) {
        Fault(entry.first, key, "",
              absl::StrCat("given twice; first at line ", first->second, "; keep one"));
      } else {
        ReadEntry(entry.first, entry.second, key);
      }
    }
  }

 private:
  void ReadEntry(const YAML::Node& key_node, const YAML::Node& value, const std::string& key) {
    const SettingRow* row = FindByKey(key);
    if (row != nullptr) {
      ReadValue(key_node, value, *row);
    } else if (IsGroup(key) && value.IsMap()) {
      Read(value, key + ".");
    } else if (IsGroup(key) && !value.IsNull()) {
      Fault(value, key, DescribeYaml(value), "a group of keys: " + KeysBelow(key));
    } else if (!IsGroup(key)) {
      UnknownKey(key_node, key);
    }
  }

  void ReadValue(const YAML::Node& key_node, const YAML::Node& value, const SettingRow& row) {
    // The mark of an empty value is that of the next token, which may be many lines below.
    const YAML::Node& place = value.IsNull() ? key_node : value;
    if (!value.IsScalar()) {
      Fault(place, row.key, DescribeYaml(value), row.range);
      return;
    }
    std::vector<GivenValue>& earlier = values_[row.key];
    if (!earlier.empty()) {  // E.g. "grpc.listen: x" and "grpc: {listen: x}".
      Fault(key_node, row.key, "",
            absl::StrCat("given twice; first at line ", earlier.front().line, "; keep one"));
      return;
    }
    GivenValue given;
    given.text = value.Scalar();
    given.name = row.key;
    given.file = file_;
    given.line = PlaceOf(place).line;
    given.column = PlaceOf(place).column;
    given.source = absl::StrCat("file ", file_, ":", given.line);
    earlier.push_back(std::move(given));
  }

  void UnknownKey(const YAML::Node& key_node, const std::string& key) {
    std::vector<std::string> known;
    for (const SettingRow& row : SettingsTable()) known.push_back(row.key);
    const std::string nearest = Nearest(key, known);
    const bool plain = QuoteValue(key) == absl::StrCat("\"", key, "\"");
    Fault(key_node, plain ? key : QuoteValue(key), "",
          absl::StrCat("unknown key; ", nearest.empty()
                                            ? "see genesisd --help for the known ones"
                                            : absl::StrCat("did you mean ", nearest, "?")));
  }

  void Fault(const YAML::Node& node, const std::string& path, std::string value,
             std::string accepted) {
    FieldError error;
    error.path = path;
    error.value = std::move(value);
    error.accepted = std::move(accepted);
    error.line = PlaceOf(node).line;
    error.column = PlaceOf(node).column;
    error.file = file_;
    errors_.push_back(std::move(error));
  }

  static std::string KeysBelow(const std::string& group) {
    std::string keys;
    for (const SettingRow& row : SettingsTable()) {
      if (!absl::StartsWith(row.key, group + ".")) continue;
      absl::StrAppend(&keys, keys.empty() ? "" : ", ", row.key.substr(group.size() + 1));
    }
    return keys;
  }

  static bool IsGroup(const std::string& key) { return !KeysBelow(key).empty(); }

  const std::string& file_;
  GivenValues& values_;
  std::vector<FieldError>& errors_;
};

}  // namespace

CommandLine ReadFlags(const std::vector<std::string>& args, std::vector<FieldError>& errors) {
  CommandLine line;
  const std::map<std::string, bool*> switches = {{"--help", &line.show_help},
                                                 {"-h", &line.show_help},
                                                 {"--version", &line.show_version},
                                                 {"--check-config", &line.check_config},
                                                 {"--print-config-schema", &line.show_schema},
                                                 {"--insecure", &line.insecure}};
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    const auto found = switches.find(flag);
    const std::string key = KeyOfFlag(flag);
    if (found != switches.end() && equals == std::string::npos) {
      *found->second = true;
    } else if (found != switches.end()) {
      AddSentence(flag, "takes no value; write it alone", errors);
    } else if (key.empty()) {
      AddUnknownFlag(args[i], errors);
    } else {
      GivenValue given;
      if (equals != std::string::npos) {
        given.text = args[i].substr(equals + 1);
      } else if (i + 1 < args.size() && !absl::StartsWith(args[i + 1], "--")) {
        given.text = args[++i];
      } else {
        AddSentence(flag, absl::StrCat("needs a value; write ", flag, "=VALUE"), errors);
        continue;
      }
      given.source = "flag " + flag;
      given.name = flag;
      line.flags[key] = std::move(given);
    }
  }
  return line;
}

void ReadSettingsFile(const std::string& path, const std::string& named_by, GivenValues& values,
                      std::vector<FieldError>& errors) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    AddSentence(named_by, std::string(text.status().message()), errors);
    return;
  }
  std::vector<FieldError> yaml_errors;
  const std::optional<YAML::Node> root = LoadYamlMapping(*text, yaml_errors);
  for (FieldError& error : yaml_errors) {
    error.file = path;
    errors.push_back(std::move(error));
  }
  if (root.has_value() && root->IsMap()) FileReader(path, values, errors).Read(*root, "");
}

void ReadSettingsEnvironment(const Environment& environment, GivenValues& values) {
  for (const SettingRow& row : SettingsTable()) {
    const std::optional<std::string> text = environment(row.environment);
    if (!text.has_value()) continue;
    GivenValue given;
    given.text = *text;
    given.source = absl::StrCat("environment ", row.environment);
    given.name = row.environment;
    values[row.key].push_back(std::move(given));
  }
}

}  // namespace genesis
