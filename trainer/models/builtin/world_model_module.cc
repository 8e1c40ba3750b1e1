#include "trainer/models/builtin/world_model_module.h"

#include <string>

namespace genesis {
namespace {

namespace nn = torch::nn;

// Returns linear layers between the given widths, with SiLU between them. Built one by one, because
// the order of construction is the order of drawing from the generator.
nn::Sequential Layers(const std::vector<int64_t>& widths) {
  nn::Sequential layers;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    if (i > 0) layers->push_back(nn::SiLU());
    layers->push_back(nn::Linear(widths[i], widths[i + 1]));
  }
  return layers;
}

}  // namespace

WorldModelMember::WorldModelMember(const WorldModelSizes& sizes) {
  const auto [observation, action, hidden, latent, gru] = sizes;
  encoder_ = register_module("encoder", Layers({observation, hidden, latent}));
  if (gru) {
    cell_ = register_module("dynamics", nn::GRUCell(action, latent));
  } else {
    dynamics_ = register_module("dynamics", Layers({latent + action, hidden, hidden, latent}));
  }
  change_head_ = register_module("change_head", Layers({latent, hidden, observation}));
  reward_head_ = register_module("reward_head", Layers({latent, hidden, 1}));
  done_head_ = register_module("done_head", Layers({latent, hidden, 1}));
}

torch::Tensor WorldModelMember::Advance(const torch::Tensor& latent, const torch::Tensor& action) {
  const torch::Tensor input = action.to(latent.dtype());
  if (cell_) return cell_->forward(input, latent);
  // The dynamics predict the change of the latent state.
  return latent + dynamics_->forward(torch::cat({latent, input}, 1));
}

WorldModelModule::WorldModelModule(const WorldModelSizes& sizes, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    members.push_back(std::make_shared<WorldModelMember>(sizes));
  }
  if (count == 1) {
    for (const auto& child : members[0]->named_children()) {
      register_module(child.key(), child.value());
    }
    return;
  }
  nn::ModuleList list;
  for (const auto& member : members) list->push_back(member);
  register_module("members", list);
}

Normalisation WorldModelModule::AddStatistics(const std::string& name,
                                              const std::vector<float>& mean,
                                              const std::vector<float>& deviation) {
  return {.mean = register_buffer(name + "_mean", torch::tensor(mean)),
          .deviation = register_buffer(name + "_std", torch::tensor(deviation))};
}

}  // namespace genesis
