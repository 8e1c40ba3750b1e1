#include "trainer/accel/cuda_plugin.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"
#include "trainer/accel/plugin.h"

namespace genesis {

StepGraphMaker CudaStepGraphs(const std::string& folder, std::string* fault) {
  const std::string path = folder + "/libgenesis_cuda.so";
  // Stays loaded, as what it made may.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library != nullptr ? dlsym(library, "GenesisMakeCudaStepGraph") : nullptr;
  if (symbol == nullptr) {
    *fault = absl::StrCat(path, " cannot be used: ", dlerror());
    return {};
  }
  const auto make = reinterpret_cast<decltype(&GenesisMakeCudaStepGraph)>(symbol);
  return [make] { return std::unique_ptr<StepGraph>(make()); };
}

}  // namespace genesis
