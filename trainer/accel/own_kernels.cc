#include "trainer/accel/own_kernels.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include "base/field_error.h"
#include "base/scalars.h"
#include "trainer/accel/activations.h"
#include "trainer/accel/attention.h"
#include "trainer/accel/bernoulli.h"
#include "trainer/accel/group_norm_gradient.h"
#include "trainer/accel/matrix_products.h"
#include "trainer/accel/norms.h"

namespace genesis {
namespace {

bool multiplies_by_onednn = false;

// LibTorch warns of a kernel that takes the place of another, which is the purpose here.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// MKL multiplies FP32 matrices by AVX2 on every processor that is not Intel's. Where such a one has
// AVX-512, oneDNN, which LibTorch holds too and multiplies BF16 with, makes the same products more
// than twice as fast (docs/performance.md). Only the processor decides, so that a job computes the
// same to the bit each time it runs on one.
bool IsIntels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

}  // namespace

bool HasAvx512() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

absl::StatusOr<bool> OwnKernelsWanted(const Environment& environment) {
  constexpr char kName[] = "GENESIS_OWN_KERNELS";
  const std::optional<std::string> text = environment(kName);
  if (!text) return true;
  if (const std::optional<bool> wanted = ParseBool(*text)) return *wanted;
  return ToStatus({{kName, QuoteValue(*text), "exactly true or false"}});
}

void UseOwnKernels() {
  if (!HasAvx512()) return;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__,
                                __LINE__);
  library.impl("gelu", &Gelu);
  library.impl("gelu_backward", &GeluGradient);
  library.impl("silu", &Silu);
  library.impl("silu_backward", &SiluGradient);
  library.impl("native_group_norm_backward", &GroupNormGradient);
  library.impl("_foreach_norm.Scalar", &Norms);
  if (IsIntels()) return;
  // Intel's draw from MKL's stream of numbers.
  library.impl("bernoulli_.float", &Bernoulli);
  library.impl("mm", &Multiply);
  library.impl("mm.out", &MultiplyTo);
  library.impl("addmm", &MultiplyAndAdd);
  library.impl("addmm.out", &MultiplyAndAddTo);
  library.impl("_scaled_dot_product_flash_attention_for_cpu", &Attention);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", &AttentionGradient);
  multiplies_by_onednn = true;
}

bool MultipliesByOneDnn() { return multiplies_by_onednn; }

}  // namespace genesis
