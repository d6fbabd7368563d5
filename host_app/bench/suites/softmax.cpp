// softmax and log_softmax. ATen's softmax backward moves twice what it must: the product of
// gradient and output is a tensor.

#include <ATen/TensorOperators.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <warpfuse/dispatch.h>
#include <warpfuse/softmax.h>

#include "bench/suites/inputs.h"
#include "bench/suites/suites.h"

namespace warpfuse::host::bench {
namespace softmax_suite {
namespace {

constexpr const char* kAlgorithm = "warpfuse::_softmax_algorithm";

bool is_log(const Case& c) { return c.op == &kLogSoftmax; }

struct Set {
  at::Tensor scores;               // forward
  at::Tensor output, grad_output;  // backward
};

// --- calls ------------------------------------------------------------------------------------

at::Tensor plugin_forward(const Set& in, int64_t dim, bool log) {
  return log ? warpfuse::log_softmax(in.scores, dim) : warpfuse::softmax(in.scores, dim);
}

at::Tensor plugin_backward(const Set& in, int64_t dim, bool log) {
  using Gradient = at::Tensor(const at::Tensor&, const at::Tensor&, int64_t);
  if (log) {
    static const auto op = detail::find_operator<Gradient>("warpfuse::_log_softmax_backward");
    return op.call(in.grad_output, in.output, dim);
  }
  static const auto op = detail::find_operator<Gradient>("warpfuse::_softmax_backward");
  return op.call(in.grad_output, in.output, dim);
}

at::Tensor aten_softmax(const at::Tensor& x, int64_t dim, bool log) {
  return log ? at::log_softmax(x, dim) : at::softmax(x, dim);
}

at::Tensor aten_forward(const Set& in, int64_t dim, bool log) {
  return aten_softmax(in.scores, dim, log);
}

at::Tensor aten_backward(const Set& in, int64_t dim, bool log) {
  return (log ? at::_log_softmax_backward_data : at::_softmax_backward_data)(
      in.grad_output, in.output, dim, in.output.scalar_type());
}

// --- the benchmark ----------------------------------------------------------------------------

Expected expected_of(const Case& c, const Set& set, const Part& part) {
  const auto in_double = [&](const at::Tensor& tensor) { return part(tensor).to(at::kDouble); };
  const int64_t dim = c.shape.dim;
  if (c.is_forward()) {
    const at::Tensor x = in_double(set.scores);
    const at::Tensor value = aten_softmax(x, dim, is_log(c));
    return {value, is_log(c) ? value.abs() + 1 : value};
  }
  const at::Tensor y = in_double(set.output);
  const at::Tensor g = in_double(set.grad_output);
  if (!is_log(c)) {
    return softmax_gradient(y, g, y, dim);
  }
  const at::Tensor p = y.exp();
  return {g - p * g.sum(dim, true), g.abs() + p * g.abs().sum(dim, true)};
}

std::vector<Variant> variants(const Case& c, const Setup& setup) {
  using enum Variant::Kind;
  const int64_t dim = c.shape.dim;
  const bool log = is_log(c), forward = c.is_forward();
  const Sets<Set> sets = make_sets<Set>(setup);
  add_scores(*sets, c, setup, [&](const Set&, const at::Tensor& x, const Part&) {
    return aten_softmax(x, dim, log);
  });
  const auto error = against_pieces(sets, c, expected_of);
  const double tolerance = tolerance_of(c.dtype, /*of_aten=*/false);
  const auto by = [&](at::Tensor (*call)(const Set&, int64_t, bool)) {
    return on(sets, [call, dim, log](const Set& in) { return call(in, dim, log); });
  };
  std::vector<Variant> all{
      {"warpfuse", plugin, by(forward ? plugin_forward : plugin_backward), error, tolerance},
      {"aten", aten, by(forward ? aten_forward : aten_backward), error,
       tolerance_of(c.dtype, /*of_aten=*/true)}};
  for (const std::string& name : setup.algorithms) {
    const auto op =
        detail::find_operator<at::Tensor(const at::Tensor&, int64_t, c10::string_view, bool)>(
            kAlgorithm);
    all.push_back({name, algorithm,
                   on(sets, [op, name, dim,
                             log](const Set& in) { return op.call(in.scores, dim, name, log); }),
                   error, tolerance});
  }
  return all;
}

std::vector<std::string> operators(const Case& c) {
  const char* form = c.is_forward() ? "warpfuse::{}" : "warpfuse::_{}_backward";
  return {fmt::format(fmt::runtime(form), c.op->name)};
}

// Each element of the inputs is read once, each of the result is written once.
Bytes bytes(const Case& c) {
  const int64_t pass = c.bytes();
  const int64_t inputs = c.is_forward() ? pass : 2 * pass;
  const int64_t least = inputs + pass;
  return {.least = least,
          .fused = least,
          .unfused = c.is_forward() || is_log(c) ? least : 2 * least,
          .inputs = inputs};
}

const std::vector<std::string>& algorithm_names(bool cuda) {
  static const std::vector<std::string> of_cuda{"naive", "warp", "block", "cluster", "stream"};
  static const std::vector<std::string> of_cpu{"naive", "vector"};
  return cuda ? of_cuda : of_cpu;
}

constexpr Benchmark benchmark(std::string_view name) {
  return {.name = name,
          .family = "softmax",
          .algorithms = kAlgorithm,
          .algorithm_names = algorithm_names,
          .operators = operators,
          .bytes = bytes,
          .variants = variants};
}

}  // namespace
}  // namespace softmax_suite

constexpr Benchmark kSoftmax = softmax_suite::benchmark("softmax");
constexpr Benchmark kLogSoftmax = softmax_suite::benchmark("log_softmax");

}  // namespace warpfuse::host::bench
