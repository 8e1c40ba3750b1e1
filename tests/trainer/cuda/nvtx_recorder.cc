// Takes the place of NVIDIA Nsight: NVTX loads the library named by NVTX_INJECTION64_PATH and calls
// its InitializeInjectionNvtx2. Appends the name of each range that starts to the file named by
// NVTX_RECORDER_FILE.
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <fstream>

namespace {

int NVTX_API BeginRange(const char* name) {
  std::ofstream(std::getenv("NVTX_RECORDER_FILE"), std::ios::app) << name << "\n";
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
      size <= NVTX_CBID_CORE_RangePushA) {
    return 0;
  }
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&BeginRange);
  return 1;
}
