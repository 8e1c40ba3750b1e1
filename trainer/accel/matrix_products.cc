#include "trainer/accel/matrix_products.h"

#include <ATen/ATen.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include "trainer/accel/mkldnn_matmul.h"

namespace genesis {
namespace {

constexpr int64_t kFewestMultiplications = kLeastOneDnnSide * kLeastOneDnnSide * kLeastOneDnnSide;

bool Suits(const at::Tensor& left, const at::Tensor& right) {
  const auto is_matrix = [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.scalar_type() == at::kFloat &&
           tensor.layout() == at::kStrided && tensor.device().is_cpu();
  };
  return is_matrix(left) && is_matrix(right) && left.size(1) == right.size(0) &&
         left.size(0) * left.size(1) * right.size(1) >= kFewestMultiplications;
}

// A place for the product that oneDNN can write.
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
  if (!Suits(left, right) || !Takes(out, left, right)) return at::cpu::mm_out(out, left, right);
  at::native::mkldnn_matmul(left, right, out, /*beta=*/0, /*alpha=*/1);
  return out;
}

at::Tensor Multiply(const at::Tensor& left, const at::Tensor& right) {
  if (!Suits(left, right)) return at::cpu::mm(left, right);
  at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  at::native::mkldnn_matmul(left, right, out, /*beta=*/0, /*alpha=*/1);
  return out;
}

at::Tensor& MultiplyAndAddTo(const at::Tensor& addend, const at::Tensor& left,
                             const at::Tensor& right, const at::Scalar& beta,
                             const at::Scalar& alpha, at::Tensor& out) {
  if (!SuitsSum(addend, left, right, beta, alpha) || !Takes(out, left, right)) {
    return at::cpu::addmm_out(out, addend, left, right, beta, alpha);
  }
  AddProduct(addend, left, right, out);
  return out;
}

at::Tensor MultiplyAndAdd(const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
                          const at::Scalar& beta, const at::Scalar& alpha) {
  if (!SuitsSum(addend, left, right, beta, alpha)) {
    return at::cpu::addmm(addend, left, right, beta, alpha);
  }
  at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
  AddProduct(addend, left, right, out);
  return out;
}

}  // namespace genesis

// The entries of compiled steps, past the dispatcher: their library finds these in the program
// before those of LibTorch.
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
