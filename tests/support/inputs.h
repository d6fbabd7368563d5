#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

inline const std::vector<at::ScalarType> kDtypes = {at::kDouble, at::kFloat, at::kHalf,
                                                    at::kBFloat16};

/// Those of the operators for inference alone.
inline const std::vector<at::ScalarType> kInferenceDtypes = {at::kFloat, at::kHalf, at::kBFloat16};

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Normal values, drawn on the CPU so that every device sees the same ones.
inline at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType dtype,
                                const at::Device& device = at::kCPU, double spread = 3.0) {
  return at::randn(sizes, at::kDouble).mul_(spread).to(dtype).to(device);
}

/// The same with one outlier in about 50 values, 20 times as large.
inline at::Tensor random_with_outliers(at::IntArrayRef sizes, at::ScalarType dtype,
                                       const at::Device& device = at::kCPU) {
  const at::Tensor values = at::randn(sizes, at::kDouble);
  const at::Tensor outlier = at::rand(sizes, at::kDouble).lt(0.02);
  return at::where(outlier, values * 20.0, values).to(dtype).to(device);
}

/// The same values on `device`, their first `offset` elements behind an aligned address.
inline at::Tensor placed_at(int64_t offset, const at::Tensor& values, const at::Device& device) {
  const at::Tensor memory = at::empty({values.numel() + offset}, values.options().device(device));
  return memory.narrow(0, offset, values.numel()).view(values.sizes()).copy_(values);
}

/// The largest finite value of a dtype.
inline double finfo_max(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::max();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::max();
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

/// Makes the first six rows ones without a finite sum, and of the lowest and the largest values.
inline void fill_extremes(const at::Tensor& x) {
  x[0].fill_(-kInf);
  x[1][x.size(1) - 1] = kNaN;
  x[2][x.size(1) / 2] = kInf;
  x[3].fill_(-finfo_max(x.scalar_type()));
  x[4].fill_(finfo_max(x.scalar_type()));
  x[5].fill_(kNaN);
}

/// A tensor of values on `device`, in `dtype`.
inline at::Tensor tensor_of(const std::vector<double>& values, at::ScalarType dtype,
                            const at::Device& device = at::kCPU) {
  return at::tensor(values, at::kDouble).to(dtype).to(device);
}

/// Moves the tensors that are defined into allocations of their own.
inline void move_to(const at::Device& device, std::initializer_list<at::Tensor*> tensors) {
  for (at::Tensor* tensor : tensors) {
    *tensor = tensor->defined() ? tensor->contiguous().to(device) : *tensor;
  }
}

/// "Float [2, 3]" for messages.
inline std::string describe(const at::Tensor& tensor) {
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    text += (d ? ", " : "") + std::to_string(tensor.size(d));
  }
  return text + "] on " + tensor.device().str();
}
