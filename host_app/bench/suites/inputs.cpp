#include "bench/suites/inputs.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_dropout_backward.h>
#include <ATen/ops/tensor.h>
#include <warpfuse/dispatch.h>

namespace warpfuse::host::bench {
namespace {

constexpr uint64_t kSeed = 20;
constexpr int64_t kAlignment = 512;  // bytes, as ATen's allocator gives

}  // namespace

std::vector<at::Tensor> make_tensors(int64_t count, at::IntArrayRef sizes,
                                     const at::TensorOptions& options) {
  const int64_t elements = c10::multiply_integers(sizes);
  const auto step = kAlignment / static_cast<int64_t>(options.dtype().itemsize());
  const int64_t padded = (elements + step - 1) / step * step;
  const at::Tensor all = at::empty({count, padded}, options);
  std::vector<at::Tensor> tensors;
  tensors.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    tensors.push_back(all.select(0, i).narrow(0, 0, elements).view(sizes));
  }
  return tensors;
}

void seed_inputs() { at::manual_seed(kSeed); }

void fill_randomly(const at::Tensor& tensor) { tensor.normal_(); }

at::Tensor column(const Part& part, const at::Tensor& tensor) {
  return part(tensor.unsqueeze(-1)).narrow(-1, 0, 1);
}

at::TensorOptions options_of(const Case& c, const Setup& setup) {
  return at::TensorOptions().device(setup.device).dtype(c.dtype);
}

bool has_rows(const Shape& shape) { return shape.sizes.size() >= 2 && shape.dim == -1; }

bool is_linear(const Shape& shape) { return shape.sizes.size() == 3 && shape.dim == -1; }

bool are_tokens(const at::Tensor& result, at::IntArrayRef rows, int64_t columns) {
  return result.sizes() == rows && result.scalar_type() == at::kLong &&
         !result.lt(-1).logical_or_(result.ge(columns)).any().item<bool>();
}

at::Tensor token_errors(const at::Tensor& errors, const at::Tensor& tokens, const at::Tensor& none,
                        bool of_aten) {
  const at::Tensor is_none = tokens.lt(0);
  return errors.masked_fill(is_none.logical_xor(none), kInfinity)
      .masked_fill(of_aten ? none : none.logical_and(is_none), 0.0);
}

at::Tensor kept_by(const at::Tensor& like, const at::Tensor& rng) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, double, const at::Tensor&)>(
          "warpfuse::_dropout_mask");
  return op.call(like, kDropoutP, rng);
}

void draw_dropout(DropoutSet& set, int64_t seed) {
  set.rng = at::tensor({seed, int64_t{0}}, at::kLong).to(set.scores.device());
  set.keep = kept_by(set.scores, set.rng);
}

Variant plugin_variant(const Benchmark& op, const std::string& name, Case c, const Setup& setup) {
  c.op = &op;
  Variant variant = op.variants(c, setup).front();
  variant.name = name;
  return variant;
}

at::Tensor dropout_factors(const at::Tensor& keep) {
  return keep.to(at::kDouble) / (1 - kDropoutP);
}

at::Tensor dropout_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                            const at::Tensor& statistics, const at::Tensor& rng, int64_t dim,
                            bool softmax_first) {
  static const auto op =
      detail::find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, int64_t, double, bool)>(
          "warpfuse::_dropout_softmax_backward");
  return op.call(grad_output, saved, statistics, rng, dim, kDropoutP, softmax_first);
}

at::Tensor aten_dropout_backward(const at::Tensor& grad_output, const at::Tensor& keep) {
  return at::native_dropout_backward(grad_output, keep, 1 / (1 - kDropoutP));
}

}  // namespace warpfuse::host::bench
