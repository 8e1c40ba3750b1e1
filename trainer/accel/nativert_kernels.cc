#include "trainer/accel/nativert_kernels.h"

#include <unordered_map>

#include "trainer/accel/nativert_registry.h"

namespace genesis {
namespace {

using torch::nativert::StaticKernels;
using Creators = std::unordered_map<std::string, StaticKernels::Creator>;

Creators StaticKernels::*CreatorsMember();

// The registry has no way to remove. An explicit instantiation may name what is private; it does
// not compile where the registry has become another.
template <Creators StaticKernels::*member>
struct Reveal {
  friend Creators StaticKernels::*CreatorsMember() { return member; }
};
template struct Reveal<&StaticKernels::registry_>;

}  // namespace

void LeaveToDispatcher(const std::string& operation) {
  StaticKernels& kernels = *torch::nativert::StaticallyDispatchedCPUKernelRegistry();
  (kernels.*CreatorsMember()).erase("torch.ops.aten." + operation);
}

}  // namespace genesis
