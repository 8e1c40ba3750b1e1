#include "trainer/cuda/cuda_plugin.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "trainer/cuda/plugin.h"

namespace genesis {
namespace {

// Returns the function `name` of a library; null, with the reason in `fault`, if either is missing.
// The library stays loaded, because objects that it created may stay in use.
template <typename Function>
Function* Load(const std::string& path, const char* name, std::string* fault) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) *fault = absl::StrCat(path, " cannot be used: ", dlerror());
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

StepGraphMaker CudaStepGraphs(const std::string& folder, std::string* fault) {
  const auto make = Load<decltype(GenesisMakeCudaStepGraph)>(folder + "/libgenesis_cuda.so",
                                                             "GenesisMakeCudaStepGraph", fault);
  if (make == nullptr) return {};
  return [make] { return std::unique_ptr<StepGraph>(make()); };
}

CommunicatorFactory* NcclCommunicators(const std::string& folder, std::string* fault) {
  const auto get = Load<decltype(GenesisNcclCommunicators)>(folder + "/libgenesis_nccl.so",
                                                            "GenesisNcclCommunicators", fault);
  return get != nullptr ? get() : nullptr;
}

}  // namespace genesis
