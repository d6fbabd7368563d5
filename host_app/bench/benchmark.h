#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <span>

#include "bench/case.h"

namespace warpfuse::host::bench {

// What a call returns: its result, and what a training step gives besides.
struct Outputs {
  // Implicit, since most calls return one tensor.
  Outputs(at::Tensor only)  // NOLINT(misc-explicit-constructor)
      : result(std::move(only)) {}
  Outputs(at::Tensor largest, std::vector<at::Tensor> rest)
      : result(std::move(largest)), others(std::move(rest)) {}

  int64_t bytes() const;
  // Fills all tensors with NaN, or the least integer.
  void spoil() const;

  at::Tensor result;
  std::vector<at::Tensor> others;
};

// One way to compute a row, with the inputs that it works on.
struct Variant {
  enum class Kind { plugin, algorithm, aten };

  std::string name;
  Kind kind;
  std::function<Outputs(int64_t set)> call;
  // The largest error of the outputs for set 0, NaN where there is one; right up to `tolerance`. A
  // check rewinds the generators of random numbers before the call, so that this may draw the same.
  std::function<double(const Outputs&)> error;
  double tolerance;
  at::Tensor overwritten = {};  // of set 0, where the result is written over an input
};

// How the inputs of a row are made.
struct Setup {
  using Fill = std::function<void(const at::Tensor&)>;

  c10::Device device;
  int64_t sets = 1;                          // inputs, each in memory of its own
  std::vector<std::string> algorithms = {};  // see Benchmark, as variants by name
  // Or logits, linear's input, or the value of ms_deform_attn.
  Fill scores = [](const at::Tensor& tensor) { tensor.normal_(); };
};

// Bytes that a row must move to and from memory, as a model: at least; in kernels as the plugin's
// are meant to work; and in ATen's kernels. `inputs` are the tensors that one call is given.
struct Bytes {
  int64_t least, fused, unfused, inputs;
};

inline constexpr std::array kForward{Direction::forward};
inline constexpr std::array kForwardAndBackward{Direction::forward, Direction::backward};

// An operator in the benchmark: the axes that its rows have, and how a row is computed. One file of
// suites/ each, and its name in the table of suites/suites.h.
struct Benchmark {
  std::string_view name;
  std::string_view family = name;  // operators of one family take each other's shapes of presets
  std::string_view shapes = {};    // those that it takes, in words; empty where it takes all
  bool (*takes)(const Shape&) = [](const Shape&) { return true; };
  std::span<const Direction> directions = kForwardAndBackward;  // that --backward asks for
  std::span<const Mask> masks = {};                             // that rows may have beside none
  bool tf32 = false;                                            // whether rows may be in tf32
  bool float64 = true;                                          // whether rows may be in float64
  bool levels = false;                                          // whether shapes have levels
  // The operator that computes forward rows by an algorithm by name; empty where there is none.
  std::string_view algorithms = {};
  // The names that it knows on a device; null where it is another library's, which may know any.
  const std::vector<std::string>& (*algorithm_names)(bool cuda) = nullptr;
  std::vector<std::string> (*operators)(const Case&);  // of the plugin, as require_operators takes
  Bytes (*bytes)(const Case&);
  // "warpfuse", the plugin's operator, comes first; then ATen's; then what else is worth a look.
  // Inputs are random, and equal from run to run on one machine.
  std::vector<Variant> (*variants)(const Case&, const Setup&);
};

std::span<const Benchmark* const> benchmarks();

// Null for an unknown name.
const Benchmark* find_benchmark(std::string_view name);

// The operators of all rows, each once.
std::vector<std::string> operators_of(const std::vector<Case>& cases);

// Whether an exception's text is that of an operator of algorithms by name, such as
// _softmax_algorithm, that this one cannot take the shape.
bool is_refusal(std::string_view message);

// Sets libtorch's generators of random numbers to one and the same state.
void rewind_generators();

}  // namespace warpfuse::host::bench
