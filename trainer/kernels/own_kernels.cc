#include "trainer/kernels/own_kernels.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include "base/text/field_error.h"
#include "base/text/scalars.h"
#include "config/precision/vector_instructions.h"
#include "trainer/kernels/activations.h"
#include "trainer/kernels/attention.h"
#include "trainer/kernels/bernoulli.h"
#include "trainer/kernels/convolutions.h"
#include "trainer/kernels/group_norm_gradient.h"
#include "trainer/kernels/matrix_products.h"
#include "trainer/kernels/nativert_kernels.h"
#include "trainer/kernels/norms.h"

namespace genesis {
namespace {

bool uses_own_kernels = false;
bool multiplies_by_onednn = false;
bool multiplies_bf16_in_fp32 = false;

// A handler that drops LibTorch's warning about replaced kernels, which is expected here.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// MKL uses AVX2 for FP32 products on every processor that is not Intel's. If such a processor has
// AVX-512, oneDNN, which is also in LibTorch and multiplies BF16, is more than twice as fast
// (docs/benchmarks/optimizations.md).
bool OneDnnMultipliesFaster() { return HasAvx512() && !IsIntels(); }

// Intel's vdpbf16ps sums half as many products per second as its FP32 instructions, AMD's twice as
// many, and AMX eight times as many. Without any of these, BF16 is emulated.
bool Fp32MultipliesFaster() { return !HasAmxBf16() && (!HasAvx512Bf16() || IsIntels()); }

// Replaces an operator's kernel, also for exported graphs.
template <typename Kernel>
void Replace(torch::Library& library, const std::string& operation, Kernel kernel) {
  library.impl(operation.c_str(), kernel);
  LeaveToDispatcher(operation + ".default");
}

}  // namespace

absl::StatusOr<bool> OwnKernelsWanted(const Environment& environment) {
  constexpr char kName[] = "GENESIS_OWN_KERNELS";
  const std::optional<std::string> text = environment(kName);
  if (!text) return true;
  if (const std::optional<bool> wanted = ParseBool(*text)) return *wanted;
  return ToStatus({{kName, QuoteValue(*text), "exactly true or false"}});
}

// Depends only on the processor, so that repeated runs of a job on it are bitwise equal.
void UseOwnKernels() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__,
                                __LINE__);
  uses_own_kernels = true;
  multiplies_by_onednn = OneDnnMultipliesFaster();
  multiplies_bf16_in_fp32 = Fp32MultipliesFaster();
  if (HasAvx512()) {
    library.impl("gelu", &Gelu);
    library.impl("gelu_backward", &GeluGradient);
    library.impl("silu", &Silu);
    library.impl("silu_backward", &SiluGradient);
    library.impl("native_group_norm_backward", &GroupNormGradient);
    library.impl("_foreach_norm.Scalar", &Norms);
  }
  // On Intel, LibTorch draws from MKL's generator.
  if (HasAvx2() && !IsIntels()) library.impl("bernoulli_.float", &Bernoulli);
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &Attention);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &AttentionGradient);
  if (multiplies_by_onednn || multiplies_bf16_in_fp32) {
    Replace(library, "mm", &Multiply);
    library.impl("mm.out", &MultiplyTo);
    Replace(library, "addmm", &MultiplyAndAdd);
    library.impl("addmm.out", &MultiplyAndAddTo);
  }
  if (multiplies_bf16_in_fp32) {
    Replace(library, "bmm", &MultiplyEach);
    library.impl("bmm.out", &MultiplyEachTo);
    Replace(library, "baddbmm", &MultiplyAndAddEach);
    library.impl("baddbmm.out", &MultiplyAndAddEachTo);
    library.impl("convolution", &Convolution);
    library.impl("convolution_backward", &ConvolutionGradient);
  }
}

bool UsesOwnKernels() { return uses_own_kernels; }

bool MultipliesByOneDnn() { return multiplies_by_onednn; }

bool MultipliesBf16InFp32() { return multiplies_bf16_in_fp32; }

}  // namespace genesis
