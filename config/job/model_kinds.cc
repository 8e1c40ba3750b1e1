#include "config/job/model_kinds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "google/protobuf/descriptor.h"

namespace genesis {

using training::v1::ModelSpec;

std::string ModelKind::name() const {
  return ModelSpec::descriptor()->FindFieldByNumber(static_cast<int>(kind))->name();
}

const ModelKind* FindKind(const ModelSpec& model) {
  const std::vector<ModelKind>& kinds = ModelKinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const ModelKind& each) {
    return each.kind == model.kind_case();
  });
  return found == kinds.end() ? nullptr : &*found;
}

std::string ModuleFile(const ModelSpec& model) {
  const ModelKind* const kind = FindKind(model);
  return kind == nullptr || kind->path == nullptr ? "" : kind->path(model);
}

std::string ModelKindsText() {
  std::vector<std::string> names;
  for (const ModelKind& kind : ModelKinds()) names.push_back(kind.name());
  return absl::StrCat("give it one kind of model: ", WordsText(names));
}

}  // namespace genesis
