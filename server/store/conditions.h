#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/store/sqlite.h"

namespace genesis {

// The conditions of a query and their bound values. Text of clients never becomes part of the SQL.
class Conditions {
 public:
  // Binds `value` and returns its placeholder, e.g. "?7".
  std::string Parameter(int64_t value) { return AddValue({.number = value, .text = ""}); }
  std::string Parameter(const std::string& value) {
    return AddValue({.number = std::nullopt, .text = value});
  }
  void Add(std::string condition) { conditions_.push_back(std::move(condition)); }

  bool IsEmpty() const { return conditions_.empty(); }
  // Returns the conjunction, without WHERE.
  std::string All() const { return absl::StrJoin(conditions_, " AND "); }
  void BindAll(Statement& statement) const {
    for (size_t i = 0; i < values_.size(); ++i) {
      const int index = static_cast<int>(i) + 1;
      if (values_[i].number) {
        statement.Bind(index, *values_[i].number);
      } else {
        statement.Bind(index, values_[i].text);
      }
    }
  }

 private:
  struct Value {
    std::optional<int64_t> number;  // Unset for text.
    std::string text;
  };
  std::string AddValue(Value value) {
    values_.push_back(std::move(value));
    return absl::StrCat("?", values_.size());
  }

  std::vector<std::string> conditions_;
  std::vector<Value> values_;
};

}  // namespace genesis
