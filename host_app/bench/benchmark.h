#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace warpfuse::host::bench {

// Keeps the order in which keys are written.
using Json = nlohmann::ordered_json;

struct Benchmark;  // an operator, see below

// both: a forward and its backward in one call, where a trainer has no use for one alone.
enum class Direction { forward, backward, both };
enum class Mask { none, causal, padding, boolean, additive, positions };

// What a row computes in; tf32: on float32, whose matrix products may use TF32.
struct Precision {
  c10::ScalarType dtype = c10::ScalarType::Float;
  bool tf32 = false;

  bool operator==(const Precision&) const = default;
};

template <typename Value, size_t n>
using Names = std::array<std::pair<Value, std::string_view>, n>;

// What the command line, the JSON and the table call them.
inline constexpr Names<Direction, 3> kDirectionNames{{{Direction::forward, "forward"},
                                                      {Direction::backward, "backward"},
                                                      {Direction::both, "both"}}};
inline constexpr Names<Mask, 6> kMaskNames{{{Mask::none, "none"},
                                            {Mask::causal, "causal"},
                                            {Mask::padding, "padding"},
                                            {Mask::boolean, "boolean"},
                                            {Mask::additive, "additive"},
                                            {Mask::positions, "positions"}}};
inline constexpr Names<Precision, 5> kDtypeNames{{{{c10::ScalarType::Float}, "float32"},
                                                  {{c10::ScalarType::Half}, "float16"},
                                                  {{c10::ScalarType::BFloat16}, "bfloat16"},
                                                  {{c10::ScalarType::Double}, "float64"},
                                                  {{c10::ScalarType::Float, true}, "tf32"}}};

template <typename Value, size_t n>
std::string name_in(const Names<Value, n>& names, Value value) {
  const auto found = std::ranges::find(names, value, [](const auto& each) { return each.first; });
  return found == names.end() ? "?" : std::string(found->second);
}

template <typename Value, size_t n>
std::optional<Value> value_in(const Names<Value, n>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name, [](const auto& each) { return each.second; });
  return found == names.end() ? std::nullopt : std::optional(found->first);
}

template <typename Value>
void add_once(std::vector<Value>& values, std::type_identity_t<Value> value) {
  if (std::ranges::find(values, value) == values.end()) {
    values.push_back(std::move(value));
  }
}

// A tensor's sizes and the dimension that a softmax runs over; -1 is the last. Or other sizes that
// a row has, with the levels of a pyramid of images.
struct Shape {
  std::vector<int64_t> sizes;
  int64_t dim = -1;
  std::vector<std::array<int64_t, 2>> levels = {};  // height and width

  bool operator==(const Shape&) const = default;
  int64_t elements() const;
  size_t softmax_dim() const { return dim < 0 ? sizes.size() - 1 : static_cast<size_t>(dim); }
  // Elements that one softmax runs over.
  int64_t columns() const { return sizes[softmax_dim()]; }
  // Such as "1024x8192" or "1x300x8x32x4/25x34/13x17".
  std::string sizes_text() const;
  // The same with the dim: "64x4096x64@1".
  std::string text() const;
};

// "1024x8192", "64x4096x64@1" or "1x300x8x32x4/25x34/13x17"; empty where `text` is no shape. A dim
// that is the last becomes -1.
std::optional<Shape> parse_shape(std::string_view text);

// One row of the benchmark: what is computed, on what.
struct Case {
  const Benchmark* op;
  Direction direction;
  Shape shape;
  c10::ScalarType dtype;
  Mask mask;
  bool tf32 = false;  // see Precision

  bool operator==(const Case&) const = default;
  bool is_forward() const { return direction == Direction::forward; }
  // What sums are in, and results of one number per row.
  c10::ScalarType sum_dtype() const {
    return dtype == c10::ScalarType::Double ? dtype : c10::ScalarType::Float;
  }
  int64_t element_bytes() const { return static_cast<int64_t>(c10::elementSize(dtype)); }
  int64_t sum_bytes() const { return static_cast<int64_t>(c10::elementSize(sum_dtype())); }
  // Of a tensor of the shape.
  int64_t bytes() const { return shape.elements() * element_bytes(); }
  int64_t rows() const { return shape.elements() / shape.columns(); }
};

// The fields that name a row in the JSON; besides, kLevelsField where the shape has levels.
inline constexpr std::array kKeyFields{"operator", "direction", "shape", "dim", "dtype", "mask"};
inline constexpr const char* kLevelsField = "levels";
Json key_of(const Case& c);
// The shape in the fields of a row or its key.
Shape shape_in(const Json& row);

// The same on one line, such as "softmax backward 1024x8192 float32 none".
std::string text_of(const Json& key);
inline std::string text_of(const Case& c) { return text_of(key_of(c)); }

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
