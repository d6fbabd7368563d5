// warpfuse_host::linear_add: a linear layer and the residual connection around it as one product of
// cuBLASLt, D = A B + C + bias, which libtorch's operators do not offer: theirs take C or a bias.

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "common/tf32.h"

namespace warpfuse::host {
namespace {

void check(cublasStatus_t status, const char* call) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS, "linear_add: ", call, ": ",
              cublasLtGetStatusString(status));
}

std::optional<cudaDataType_t> type_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return CUDA_R_32F;
    case at::kHalf:
      return CUDA_R_16F;
    case at::kBFloat16:
      return CUDA_R_16BF;
    default:
      return std::nullopt;
  }
}

// Row-major [rows, columns] is column-major columns x rows to cuBLAS.
cublasLtMatrixLayoutOpaque_t layout_of(cudaDataType_t type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayoutOpaque_t layout;
  check(cublasLtMatrixLayoutInit(&layout, type, columns, rows, columns),
        "cublasLtMatrixLayoutInit");
  return layout;
}

// Sets an attribute by cuBLASLt's setter for the kind of object.
template <auto kSetter, typename Object, typename Name, typename Value>
void set(Object& object, Name name, const Value& value) {
  check(kSetter(&object, name, static_cast<const void*>(&value), sizeof(value)), "an attribute");
}

// Alignment of an address in bytes, up to the largest that cuBLASLt distinguishes.
uint32_t alignment_of(const void* address) {
  constexpr uintptr_t kMax = 256;
  const auto at = reinterpret_cast<uintptr_t>(address) | kMax;
  return static_cast<uint32_t>(at & (~at + 1));
}

// All contiguous, in row-major order: bias [N], input [M,K], weight [K,N] or the transpose of a
// contiguous [N,K], residual and result [M,N] in any shape. Returns false where cuBLASLt has
// nothing for them.
bool launch(cudaDataType_t type, const at::Tensor& bias, const at::Tensor& input,
            const at::Tensor& weight, const at::Tensor& residual, const at::Tensor& result) {
  const int64_t rows = input.size(0), inner = input.size(1), columns = weight.size(1);
  const bool tf32 = type == CUDA_R_32F && matmul_rounds_to_tf32();
  cublasLtMatmulDescOpaque_t product;
  check(cublasLtMatmulDescInit(&product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                               CUDA_R_32F),
        "cublasLtMatmulDescInit");
  set<cublasLtMatmulDescSetAttribute>(product, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                      CUBLASLT_EPILOGUE_BIAS);
  set<cublasLtMatmulDescSetAttribute>(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                      bias.const_data_ptr());
  const bool transposed = !weight.is_contiguous();
  if (transposed) {
    set<cublasLtMatmulDescSetAttribute>(product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  }
  auto weights = transposed ? layout_of(type, columns, inner) : layout_of(type, inner, columns),
       inputs = layout_of(type, rows, inner), results = layout_of(type, rows, columns);

  const size_t workspace_bytes = at::cuda::getCUDABlasLtWorkspaceSize();
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    set<cublasLtMatmulPreferenceSetAttribute>(preference, name, value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(weight.const_data_ptr()));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(input.const_data_ptr()));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(residual.const_data_ptr()));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
         std::min(alignment_of(result.const_data_ptr()), alignment_of(bias.const_data_ptr())));

  cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  if (cublasLtMatmulAlgoGetHeuristic(handle, &product, &weights, &inputs, &results, &results,
                                     &preference, 1, &found, &count) != CUBLAS_STATUS_SUCCESS ||
      count == 0) {
    return false;
  }
  const float one = 1;
  check(cublasLtMatmul(handle, &product, &one, weight.const_data_ptr(), &weights,
                       input.const_data_ptr(), &inputs, &one, residual.const_data_ptr(), &results,
                       result.mutable_data_ptr(), &results, &found.algo,
                       at::cuda::getCUDABlasLtWorkspace(), workspace_bytes,
                       at::cuda::getCurrentCUDAStream()),
        "cublasLtMatmul");
  return true;
}

// Whether launch() supports these operands; addmm and the addition support more.
bool is_plain(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
              at::IntArrayRef sizes, const at::Tensor& residual) {
  const auto fits = [&](const at::Tensor& x) {
    return x.device() == input.device() && x.scalar_type() == input.scalar_type() &&
           x.is_contiguous() && x.numel() > 0;
  };
  return fits(bias) && fits(input) && fits(residual) && weight.dim() == 2 &&
         (fits(weight) || fits(weight.t())) && bias.dim() == 1 && input.dim() == 2 &&
         input.size(1) == weight.size(0) && bias.size(0) == weight.size(1) &&
         residual.sizes() == sizes && residual.numel() == input.size(0) * weight.size(1);
}

// residual + addmm(bias, input, weight).view(sizes): bias [N], input [M,K], weight [K,N]. Summed in
// float32 and rounded once; where cuBLASLt does not take the operands, by those two operators.
at::Tensor linear_add(const at::Tensor& bias, const at::Tensor& input, const at::Tensor& weight,
                      at::IntArrayRef sizes, const at::Tensor& residual) {
  const c10::cuda::CUDAGuard guard(input.device());
  if (const std::optional<cudaDataType_t> type = type_of(input);
      type && is_plain(bias, input, weight, sizes, residual)) {
    at::Tensor result = at::empty_like(residual);
    if (launch(*type, bias, input, weight, residual, result)) {
      return result;
    }
  }
  return at::add(residual, at::addmm(bias, input, weight).view(sizes));
}

}  // namespace
}  // namespace warpfuse::host

TORCH_LIBRARY_FRAGMENT(warpfuse_host, m) {
  m.def(
      "linear_add(Tensor bias, Tensor input, Tensor weight, int[] sizes, Tensor residual) -> "
      "Tensor");
}

TORCH_LIBRARY_IMPL(warpfuse_host, CUDA, m) { m.impl("linear_add", warpfuse::host::linear_add); }
