#include "trainer/optim/parameter_groups.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

using training::v1::OptimizerSpec;
using training::v1::ParameterGroupSpec;

constexpr size_t kNamesListed = 5;

// Returns whether the character at `p` escapes the next one, which is then matched literally.
bool IsEscape(std::string_view pattern, size_t p) {
  return pattern[p] == '\\' && p + 1 < pattern.size() &&
         std::string_view("*?\\").find(pattern[p + 1]) != std::string_view::npos;
}

// Matches * and ? as a shell does; \ escapes *, ? and \. Takes O(pattern * name) time.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // The last star, which has matched up to `taken`.
  size_t taken = 0;
  while (n < name.size()) {
    const bool left = p < pattern.size();
    const size_t literal = left && IsEscape(pattern, p) ? p + 1 : p;
    if (left && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (left && ((literal == p && pattern[p] == '?') || pattern[literal] == name[n])) {
      p = literal + 1;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

// Returns the number, from 1, of the first group with a pattern that matches; 0 if none does.
int GroupOf(const std::string& name, const OptimizerSpec& spec) {
  const auto matches = [&](const ParameterGroupSpec& group) {
    return absl::c_any_of(group.parameters(),
                          [&](const std::string& pattern) { return Matches(pattern, name); });
  };
  const auto found = absl::c_find_if(spec.parameter_groups(), matches);
  if (found == spec.parameter_groups().end()) return 0;
  return 1 + static_cast<int>(found - spec.parameter_groups().begin());
}

std::optional<double> MaxNorm(double given) {
  return given > 0 ? std::optional(given) : std::nullopt;
}

std::string FirstNames(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(parameters.size(), kNamesListed); ++i) {
    names.push_back(QuoteValue(parameters[i].first));
  }
  const size_t left = parameters.size() - names.size();
  return absl::StrCat(absl::StrJoin(names, ", "),
                      left > 0 ? absl::StrCat(" and ", left, " more") : "");
}

}  // namespace

absl::StatusOr<ParameterGroups> GroupParameters(
    const training::v1::JobSpec& spec,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  const OptimizerSpec& optimizer = spec.optimizer();
  const int count = optimizer.parameter_groups_size();
  std::vector<std::vector<int64_t>> members(static_cast<size_t>(count) + 1);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int group = GroupOf(parameters[i].first, optimizer);
    members[static_cast<size_t>(group)].push_back(static_cast<int64_t>(i));
  }

  ParameterGroups groups;
  groups.clipped.push_back(
      {.max_norm = MaxNorm(spec.training().max_grad_norm()), .optimizer_groups = {}});
  for (int each = 0; each <= count; ++each) {
    const ParameterGroupSpec own =
        each == 0 ? ParameterGroupSpec() : optimizer.parameter_groups(each - 1);
    const std::vector<int64_t>& all = members[static_cast<size_t>(each)];
    if (each > 0 && all.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "optimizer.parameter_groups[", each - 1, "].parameters: ",
          absl::StrJoin(own.parameters(), ", ",
                        [](std::string* out, const std::string& one) {
                          absl::StrAppend(out, QuoteValue(one));
                        }),
          count > 1 ? " match no parameter that is in no group before" : " match no parameter",
          "; those that are trained: ", FirstNames(parameters)));
    }
    size_t clipped = 0;
    if (own.max_grad_norm() != 0) {
      clipped = groups.clipped.size();
      groups.clipped.push_back({.max_norm = MaxNorm(own.max_grad_norm()), .optimizer_groups = {}});
    }
    const auto add = [&](double weight_decay, std::vector<int64_t> numbers) {
      if (numbers.empty()) return;
      groups.clipped[clipped].optimizer_groups.push_back(
          static_cast<int64_t>(groups.optimizer.size()));
      const double rate = own.learning_rate() > 0 ? own.learning_rate() : optimizer.learning_rate();
      groups.optimizer.push_back({.learning_rate = rate,
                                  .scheduled_learning_rate = rate,
                                  .weight_decay = weight_decay,
                                  .parameters = std::move(numbers)});
    };
    if (own.weight_decay() != 0) {
      add(MinusOneIsZero(own.weight_decay()), all);
      continue;
    }
    std::vector<int64_t> matrices;
    std::vector<int64_t> vectors;
    for (const int64_t number : all) {
      const bool vector = optimizer.no_decay_on_norms_and_biases() &&
                          parameters[static_cast<size_t>(number)].second.dim() < 2;
      (vector ? vectors : matrices).push_back(number);
    }
    add(MinusOneIsZero(optimizer.weight_decay()), std::move(matrices));
    add(0.0, std::move(vectors));
  }
  return groups;
}

}  // namespace genesis
