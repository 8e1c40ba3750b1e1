#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "config/settings/setting_values.h"
#include "config/settings/settings_table.h"

namespace genesis {

// The rows of all settings in one struct of settings.h. Methods that take a member add a row
// for it. The default is the member's initial value, the key is "<group>.<name>",
// and the environment variable is "GENESIS_<GROUP>_<NAME>". Parser, range and JSON Schema
// follow from the ValueKind.
//
// `Access` returns the struct in a Settings: [](auto& s) -> auto& { return s.grpc; }
template <typename Access>
class SettingGroup {
 public:
  using Struct = std::remove_cvref_t<std::invoke_result_t<Access, Settings&>>;

  // An empty name is for settings at the top level.
  SettingGroup(std::string name, Access access) : name_(std::move(name)), access_(access) {}

  template <typename T>
  SettingGroup& Add(const char* name, T Struct::*member, const ValueKind<T>& kind, const char* unit,
                    const char* help) {
    SettingRow row;
    row.key = name_.empty() ? name : absl::StrCat(name_, ".", name);
    row.environment =
        absl::StrCat("GENESIS_", absl::AsciiStrToUpper(absl::StrReplaceAll(row.key, {{".", "_"}})));
    row.unit = unit;
    row.range = kind.range;
    row.schema = kind.schema;
    row.help = help;
    row.set = [access = access_, member, read = kind.read](const std::string& text,
                                                           Settings& settings) {
      return read(text, access(settings).*member);
    };
    row.get = [access = access_, member, print = kind.print](const Settings& settings) {
      return print(access(settings).*member);
    };
    row.fallback = row.get(Settings());
    rows_.push_back(std::move(row));
    return *this;
  }
  template <typename T>
  SettingGroup& Number(const char* name, T Struct::*member, const NumberRange& range,
                       const char* unit, const char* help) {
    return Add(name, member, WholeNumber<T>(range), unit, help);
  }
  SettingGroup& Flag(const char* name, bool Struct::*member, const char* help) {
    return Add(name, member, TrueOrFalse(), "", help);
  }
  // Adds a number that `accepts` allows, as described by `range` and `bounds`. Its default is
  // printed like a Python float: 65536.0.
  SettingGroup& Real(const char* name, double Struct::*member, const char* range,
                     const Json& bounds, bool (*accepts)(double), const char* help) {
    Add(name, member, RealNumber(range, bounds, accepts), "", help);
    std::string& fallback = rows_.back().fallback;
    if (fallback.find_first_not_of("0123456789") == std::string::npos) fallback += ".0";
    return *this;
  }
  // Adds a path. `fallback` describes the meaning of an empty path.
  SettingGroup& Path(const char* name, std::string Struct::*member, const char* fallback,
                     const char* help, const char* range = "a path") {
    Add(name, member, OptionalPath(range), "path", help);
    rows_.back().fallback = fallback;
    rows_.back().derived = true;
    return *this;
  }

  // Adds text that may be empty. `fallback` describes the meaning of "".
  SettingGroup& Text(const char* name, std::string Struct::*member,
                     const ValueKind<std::string>& kind, const char* unit, const char* fallback,
                     const char* help) {
    Add(name, member, kind, unit, help);
    rows_.back().fallback = fallback;
    rows_.back().derived = true;
    return *this;
  }

  // Marks the last row as changed by a reload.
  SettingGroup& Reloadable() {
    rows_.back().reloadable = true;
    return *this;
  }
  // Sets the environment variable of the last row, if it does not follow from the key.
  SettingGroup& Environment(const char* variable) {
    rows_.back().environment = variable;
    return *this;
  }

  const std::vector<SettingRow>& rows() const { return rows_; }

 private:
  const std::string name_;
  const Access access_;
  std::vector<SettingRow> rows_;
};

// Concatenates the rows of the groups.
template <typename... Groups>
std::vector<SettingRow> RowsOf(const Groups&... groups) {
  std::vector<SettingRow> rows;
  (rows.insert(rows.end(), groups.rows().begin(), groups.rows().end()), ...);
  return rows;
}

}  // namespace genesis
