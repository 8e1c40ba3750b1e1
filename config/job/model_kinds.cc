#include "config/job/model_kinds.h"

#include <algorithm>

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
  if (kind == nullptr || kind->path == nullptr) return "";
  ModelSpec copy = model;
  return *kind->path(copy);
}

std::string ModelKindsText() {
  std::string text = "give it one kind of model: ";
  const std::vector<ModelKind>& kinds = ModelKinds();
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (i > 0) text += i + 1 < kinds.size() ? ", " : " or ";
    text += kinds[i].name();
  }
  return text;
}

}  // namespace genesis
