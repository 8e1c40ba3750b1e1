#include "trainer/run/matrix_products.h"

#include <ATen/ATen.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

// LibTorch exports it, and has no header for it: result = beta * result + alpha * left * right, of
// matrices of any strides.
namespace at::native {
TORCH_API void mkldnn_matmul(const Tensor& left, const Tensor& right, const Tensor& result,
                             float beta, float alpha);
}

namespace genesis {
namespace {

// Smaller ones MKL has made by the time that oneDNN has found how to, some 10 microseconds.
constexpr int64_t kFewestMultiplications = int64_t{1} << 21;

bool multiplies_by_onednn = false;

bool Suits(const at::Tensor& left, const at::Tensor& right) {
  const auto is_matrix = [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.scalar_type() == at::kFloat &&
           tensor.layout() == at::kStrided && tensor.device().is_cpu();
  };
  return is_matrix(left) && is_matrix(right) && left.size(1) == right.size(0) &&
         left.size(0) * left.size(1) * right.size(1) >= kFewestMultiplications;
}

at::Tensor Multiply(const at::Tensor& left, const at::Tensor& right) {
  if (!Suits(left, right)) return at::cpu::mm(left, right);
  const at::Tensor product = at::empty({left.size(0), right.size(1)}, left.options());
  at::native::mkldnn_matmul(left, right, product, /*beta=*/0, /*alpha=*/1);
  return product;
}

at::Tensor MultiplyAndAdd(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                          const at::Scalar& beta, const at::Scalar& alpha) {
  const bool plain = addend.scalar_type() == at::kFloat && beta.equal(1) && alpha.equal(1);
  if (!plain || !Suits(left, right)) return at::cpu::addmm(addend, left, right, beta, alpha);
  const at::Tensor sum =
      addend.expand({left.size(0), right.size(1)}).clone(at::MemoryFormat::Contiguous);
  at::native::mkldnn_matmul(left, right, sum, /*beta=*/1, /*alpha=*/1);
  return sum;
}

// LibTorch warns of a kernel that takes the place of another, which is the purpose here.
class Silence : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace

bool OneDnnMultipliesFaster() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // What oneDNN asks of a processor before it uses AVX-512.
  return !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

void MultiplyByOneDnn() {
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__,
                                __LINE__);
  library.impl("mm", &Multiply);
  library.impl("addmm", &MultiplyAndAdd);
  multiplies_by_onednn = true;
}

bool MultipliesByOneDnn() { return multiplies_by_onednn; }

}  // namespace genesis
