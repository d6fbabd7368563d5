#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

#include "common/dtype.h"

/// Every error about an argument reads
/// "warpfuse::<operator>: <argument>: expected <what>, got <what came>".
#define WARPFUSE_CHECK(condition, op, argument, expected, ...)                                \
  TORCH_CHECK(condition, "warpfuse::", op, ": ", argument, ": expected ", expected, ", got ", \
              __VA_ARGS__)

namespace warpfuse {

inline bool is_supported(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

/// The kernels' name of a checked dtype.
inline DType to_dtype(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::float64;
    case at::kFloat:
      return DType::float32;
    case at::kHalf:
      return DType::float16;
    case at::kBFloat16:
      return DType::bfloat16;
    default:
      TORCH_INTERNAL_ASSERT(false, "unchecked dtype ", type);
  }
}

inline void check_tensor(const char* op, const char* argument, const at::Tensor& tensor) {
  WARPFUSE_CHECK(tensor.defined(), op, argument, "a tensor", "an undefined one");
  WARPFUSE_CHECK(tensor.layout() == at::kStrided, op, argument, "a strided tensor",
                 tensor.layout());
}

/// Indices that kernels read in either width.
inline void check_integers(const char* op, const char* argument, const at::Tensor& tensor) {
  check_tensor(op, argument, tensor);
  WARPFUSE_CHECK(tensor.scalar_type() == at::kInt || tensor.scalar_type() == at::kLong, op,
                 argument, "int32 or int64", tensor.scalar_type());
}

inline void check_floating(const char* op, const char* argument, const at::Tensor& tensor) {
  check_tensor(op, argument, tensor);
  WARPFUSE_CHECK(is_supported(tensor.scalar_type()), op, argument,
                 "float64, float32, float16 or bfloat16", tensor.scalar_type());
}

/// self.to(dtype), for a dtype that kernels know.
inline at::Tensor converted(const char* op, const at::Tensor& self,
                            std::optional<at::ScalarType> dtype) {
  if (!dtype.has_value()) {
    return self;
  }
  check_tensor(op, "self", self);
  WARPFUSE_CHECK(is_supported(*dtype), op, "dtype", "float64, float32, float16 or bfloat16",
                 *dtype);
  return self.to(*dtype);
}

/// Whether a size is 1 or equals `other`. A size that a trace does not know (of x[mask]) cannot be
/// compared with a number, but with itself.
inline bool is_one_or(const c10::SymInt& size, const c10::SymInt& other) {
  return size.maybe_as_int() == 1 || size == other || size == 1;
}

/// The last dimension must be dense.
inline void check_dense_rows(const char* op, const char* argument, const at::Tensor& tensor) {
  WARPFUSE_CHECK(tensor.sym_size(-1) == 1 || tensor.sym_stride(-1) == 1, op, argument,
                 "a last dimension of stride 1", tensor.sym_stride(-1));
}

/// `other` must be on the device of `tensor`.
inline void check_same_device(const char* op, const char* argument, const at::Tensor& other,
                              const at::Tensor& tensor) {
  WARPFUSE_CHECK(other.device() == tensor.device(), op, argument,
                 "a tensor on " + tensor.device().str(), other.device());
}

inline void check_shape(const char* op, const char* argument, const at::Tensor& tensor,
                        c10::SymIntArrayRef sizes) {
  WARPFUSE_CHECK(tensor.sym_sizes() == sizes, op, argument, c10::str("shape ", sizes),
                 tensor.sym_sizes());
}

/// `other` must have the dtype and device of `tensor`.
inline void check_same_type(const char* op, const char* argument, const at::Tensor& other,
                            const at::Tensor& tensor) {
  check_floating(op, argument, other);
  WARPFUSE_CHECK(other.scalar_type() == tensor.scalar_type(), op, argument, tensor.scalar_type(),
                 other.scalar_type());
  check_same_device(op, argument, other, tensor);
}

/// `other` must have the shape, dtype and device of `tensor`.
inline void check_alike(const char* op, const char* argument, const at::Tensor& other,
                        const at::Tensor& tensor) {
  check_same_type(op, argument, other, tensor);
  check_shape(op, argument, other, tensor.sym_sizes());
}

}  // namespace warpfuse
