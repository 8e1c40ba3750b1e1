#include "trainer/kernels/matrix_products.h"

#include <ATen/ATen.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include "trainer/kernels/bf16_in_fp32.h"
#include "trainer/kernels/mkldnn_matmul.h"
#include "trainer/kernels/own_kernels.h"

namespace genesis {
namespace {

constexpr int64_t kFewestMultiplications = kLeastOneDnnSide * kLeastOneDnnSide * kLeastOneDnnSide;

bool Suits(const at::Tensor& left, const at::Tensor& right) {
  const auto is_matrix = [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.scalar_type() == at::kFloat &&
           tensor.layout() == at::kStrided && tensor.device().is_cpu();
  };
  return MultipliesByOneDnn() && is_matrix(left) && is_matrix(right) &&
         left.size(1) == right.size(0) &&
         left.size(0) * left.size(1) * right.size(1) >= kFewestMultiplications;
}

// Returns whether oneDNN can write the product to `out`.
bool Takes(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  return out.scalar_type() == at::kFloat && out.is_contiguous() && out.dim() == 2 &&
         out.size(0) == left.size(0) && out.size(1) == right.size(1);
}

bool SuitsSum(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
              const at::Scalar& beta, const at::Scalar& alpha) {
  return Suits(left, right) && addend.scalar_type() == at::kFloat && beta.equal(1) &&
         alpha.equal(1);
}

void AddProduct(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                at::Tensor& out) {
  out.copy_(addend.expand_as(out));
  at::native::mkldnn_matmul(left, right, out, /*beta=*/1, /*alpha=*/1);
}

}  // namespace

at::Tensor& MultiplyTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  if (InFp32(left, right, out)) return Rounded(at::mm(Wide(left), Wide(right)), out);
  if (!Suits(left, right) || !Takes(out, left, right)) return at::cpu::mm_out(out, left, right);
  at::native::mkldnn_matmul(left, right, out, /*beta=*/0, /*alpha=*/1);
  return out;
}

at::Tensor Multiply(const at::Tensor& left, const at::Tensor& right) {
  if (InFp32(left, right)) return Rounded(at::mm(Wide(left), Wide(right)));
  if (!Suits(left, right)) return at::cpu::mm(left, right);
  at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  at::native::mkldnn_matmul(left, right, out, /*beta=*/0, /*alpha=*/1);
  return out;
}

at::Tensor& MultiplyAndAddTo(const at::Tensor& addend, const at::Tensor& left,
                             const at::Tensor& right, const at::Scalar& beta,
                             const at::Scalar& alpha, at::Tensor& out) {
  if (InFp32(addend, left, right, out)) {
    return Rounded(at::addmm(Wide(addend), Wide(left), Wide(right), beta, alpha), out);
  }
  if (!SuitsSum(addend, left, right, beta, alpha) || !Takes(out, left, right)) {
    return at::cpu::addmm_out(out, addend, left, right, beta, alpha);
  }
  AddProduct(addend, left, right, out);
  return out;
}

at::Tensor MultiplyAndAdd(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                          const at::Scalar& beta, const at::Scalar& alpha) {
  if (InFp32(addend, left, right)) {
    return Rounded(at::addmm(Wide(addend), Wide(left), Wide(right), beta, alpha));
  }
  if (!SuitsSum(addend, left, right, beta, alpha)) {
    return at::cpu::addmm(addend, left, right, beta, alpha);
  }
  at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  AddProduct(addend, left, right, out);
  return out;
}

at::Tensor MultiplyEach(const at::Tensor& left, const at::Tensor& right) {
  if (InFp32(left, right)) return Rounded(at::bmm(Wide(left), Wide(right)));
  return at::cpu::bmm(left, right);
}

at::Tensor& MultiplyEachTo(const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  if (InFp32(left, right, out)) return Rounded(at::bmm(Wide(left), Wide(right)), out);
  return at::cpu::bmm_out(out, left, right);
}

at::Tensor MultiplyAndAddEach(const at::Tensor& addend, const at::Tensor& left,
                              const at::Tensor& right, const at::Scalar& beta,
                              const at::Scalar& alpha) {
  if (InFp32(addend, left, right)) {
    return Rounded(at::baddbmm(Wide(addend), Wide(left), Wide(right), beta, alpha));
  }
  return at::cpu::baddbmm(addend, left, right, beta, alpha);
}

at::Tensor& MultiplyAndAddEachTo(const at::Tensor& addend, const at::Tensor& left,
                                 const at::Tensor& right, const at::Scalar& beta,
                                 const at::Scalar& alpha, at::Tensor& out) {
  if (InFp32(addend, left, right, out)) {
    return Rounded(at::baddbmm(Wide(addend), Wide(left), Wide(right), beta, alpha), out);
  }
  return at::cpu::baddbmm_out(out, addend, left, right, beta, alpha);
}

}  // namespace genesis

// The entry points for compiled steps, which bypass the dispatcher. The library of a package
// resolves to these symbols of the program before those of LibTorch.
AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                     AtenTensorHandle mat2) {
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
      { at::mm_out(*tensor(out), *tensor(self), *tensor(mat2)); });
}

AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                        AtenTensorHandle mat1, AtenTensorHandle mat2, double beta,
                                        double alpha) {
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
      { at::addmm_out(*tensor(out), *tensor(self), *tensor(mat1), *tensor(mat2), beta, alpha); });
}

AOTITorchError aoti_torch_cpu_bmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                      AtenTensorHandle mat2) {
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE(
      { at::bmm_out(*tensor(out), *tensor(self), *tensor(mat2)); });
}

AOTITorchError aoti_torch_cpu_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                          AtenTensorHandle batch1, AtenTensorHandle batch2,
                                          double beta, double alpha) {
  const auto tensor = torch::aot_inductor::tensor_handle_to_tensor_pointer;
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    at::baddbmm_out(*tensor(out), *tensor(self), *tensor(batch1), *tensor(batch2), beta, alpha);
  });
}
