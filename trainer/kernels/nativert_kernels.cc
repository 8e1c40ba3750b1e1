#include "trainer/kernels/nativert_kernels.h"

#include <unordered_map>

#include "trainer/kernels/nativert_registry.h"

namespace genesis {
namespace {

using torch::nativert::StaticKernels;
using Creators = std::unordered_map<std::string, StaticKernels::Creator>;

Creators StaticKernels::*CreatorsMember();

// The registry cannot remove entries. An explicit instantiation may access a private member; it
// stops compiling if the registry changes.
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
