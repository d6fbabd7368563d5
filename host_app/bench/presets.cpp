#include "bench/presets.h"

#include <initializer_list>
#include <optional>
#include <stdexcept>

namespace warpfuse::host::bench {
namespace {

constexpr Precision kFloat32{c10::ScalarType::Float};
constexpr Precision kFloat16{c10::ScalarType::Half};
constexpr Precision kBFloat16{c10::ScalarType::BFloat16};
constexpr Precision kTf32{c10::ScalarType::Float, true};

std::vector<Operator> softmax() { return {Operator::softmax}; }
std::vector<Operator> masked() { return {Operator::scaled_masked_softmax}; }
std::vector<Operator> logprob() { return {Operator::fused_logprob}; }
std::vector<Operator> dropout_softmax() { return {Operator::dropout_softmax}; }
std::vector<Operator> softmax_dropout() { return {Operator::softmax_dropout}; }
std::vector<Operator> linear() { return {Operator::linear_dropout_softmax}; }
std::vector<Direction> forward() { return {Direction::forward}; }
std::vector<Direction> each_way() { return {Direction::forward, Direction::backward}; }
// Forward, and a training step.
std::vector<Direction> step_too() { return {Direction::forward, Direction::both}; }

std::vector<Shape> shapes(std::initializer_list<std::string_view> texts) {
  std::vector<Shape> parsed;
  for (const std::string_view text : texts) {
    const std::optional<Shape> shape = parse_shape(text);
    if (!shape) {
      throw std::logic_error("a preset holds no shape: " + std::string(text));
    }
    parsed.push_back(*shape);
  }
  return parsed;
}

// Columns from 32 to 262144 in powers of two, each with its odd neighbour, and GPT-2's vocabulary;
// rows for about 64M elements.
std::vector<Shape> sweep_shapes() {
  constexpr int64_t kElements = int64_t{64} * 1024 * 1024;
  constexpr int64_t kVocabulary = 50257;
  std::vector<Shape> sweep;
  const auto add = [&](int64_t columns) { sweep.push_back({{kElements / columns, columns}}); };
  for (int64_t columns = 32; columns <= 262144; columns *= 2) {
    add(columns);
    add(columns + 1);
    if (columns < kVocabulary && kVocabulary < 2 * columns) {
      add(kVocabulary);
    }
  }
  return sweep;
}

std::vector<Entry> basic_rows() {
  return {{softmax(), shapes({"1024x8192"}), {kFloat32}, {Mask::none}, forward()},
          {masked(),
           shapes({"1x512x512", "1x1024x1024"}),
           {kFloat32},
           {Mask::none, Mask::causal, Mask::padding},
           forward()},
          {logprob(), shapes({"512x50257"}), {kFloat32}, {Mask::none}, forward()}};
}

std::vector<Entry> table_rows() {
  const std::vector<Precision> two{kFloat32, kBFloat16};
  return {{softmax(),
           shapes({"1024x8192", "65536x512", "65536x1024", "65536x1025", "16384x4096", "8192x8192",
                   "4096x32768", "4096x50257", "2048x131072", "512x262144"}),
           two,
           {Mask::none},
           each_way()},
          {softmax(), shapes({"1x50257", "8x50257", "32x128256"}), two, {Mask::none}, forward()},
          {softmax(), shapes({"16x1000003", "1x16777259"}), {kBFloat16}, {Mask::none}, each_way()},
          {softmax(), shapes({"64x4096x64@1"}), {kFloat32}, {Mask::none}, each_way()},
          {masked(), shapes({"96x1024x1024"}), two, {Mask::causal}, each_way()},
          {masked(), shapes({"12x4096x4096"}), {kBFloat16}, {Mask::causal}, each_way()},
          {masked(), shapes({"8x12x1024x1024"}), {kBFloat16}, {Mask::padding}, each_way()},
          {masked(), shapes({"1x12x1x1024"}), {kFloat16}, {Mask::positions}, forward()}};
}

std::vector<Entry> cpu_rows() {
  const std::vector<Precision> three{kFloat32, kBFloat16, kFloat16};
  return {{softmax(),
           shapes({"1024x8192", "4096x512", "512x50257", "64x1025", "65536x64", "64x1024x64@1"}),
           three,
           {Mask::none},
           forward()},
          {{Operator::log_softmax}, shapes({"512x50257"}), {kFloat32}, {Mask::none}, forward()},
          {masked(),
           shapes({"12x1024x1024"}),
           three,
           {Mask::none, Mask::causal, Mask::boolean, Mask::additive},
           forward()},
          {logprob(),
           shapes({"512x50257", "64x32000", "4096x1000"}),
           {kFloat32, kBFloat16},
           {Mask::none},
           {Direction::forward, Direction::backward, Direction::both}},
          {dropout_softmax(), shapes({"128x16384"}), {kFloat32}, {Mask::none}, each_way()},
          {softmax_dropout(), shapes({"96x256x256"}), {kFloat32}, {Mask::none}, each_way()},
          {linear(), shapes({"128x1024x1024"}), {kFloat32}, {Mask::none}, step_too()}};
}

// Heads of language models: batches of training, and one token of decoding.
std::vector<Entry> logprob_rows() {
  const std::vector<Direction> all{Direction::forward, Direction::backward, Direction::both};
  return {{logprob(),
           shapes({"4096x32000", "8192x50257", "8192x128256"}),
           {kBFloat16},
           {Mask::none},
           all},
          {logprob(), shapes({"2048x128000"}), {kFloat16}, {Mask::none}, all},
          {logprob(), shapes({"1x128256"}), {kBFloat16}, {Mask::none}, forward()}};
}

// A layer of 16384 features with and without its linear, one that is made by a single kernel, and
// attention in training.
std::vector<Entry> dropout_rows() {
  return {{dropout_softmax(), shapes({"128x16384"}), {kFloat32}, {Mask::none}, each_way()},
          {dropout_softmax(), shapes({"8192x8192"}), {kBFloat16}, {Mask::none}, each_way()},
          {softmax_dropout(), shapes({"96x1024x1024"}), {kBFloat16}, {Mask::none}, each_way()},
          {linear(), shapes({"128x2048x16384"}), {kTf32, kBFloat16}, {Mask::none}, step_too()},
          {linear(),
           shapes({"128x16384x16384"}),
           {kFloat32, kTf32, kBFloat16},
           {Mask::none},
           step_too()}};
}

std::vector<Entry> sweep_rows() {
  return {{softmax(), sweep_shapes(), {kFloat32, kBFloat16}, {Mask::none}, forward()}};
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"basic",
       "1024x8192, attention's 512 and 1024 with none, causal, padding, and a head of 512x50257",
       basic_rows()},
      {"table", "the shapes of docs/benchmarks, forward and backward, for a GPU", table_rows()},
      {"cpu", "smaller shapes, every kind of mask, for the CPU", cpu_rows()},
      {"sweep", "32 to 262144 columns and odd neighbours, 64M elements each", sweep_rows()},
      {"logprob", "fused_logprob on heads of 32000 to 128256 columns, for a GPU", logprob_rows()},
      {"dropout", "softmax with dropout, alone and behind a linear, for a GPU", dropout_rows()}};
  return all;
}

}  // namespace warpfuse::host::bench
