#include "bench/presets.h"

#include <initializer_list>

namespace warpfuse::host::bench {
namespace {

constexpr auto kFloat32 = c10::ScalarType::Float;
constexpr auto kFloat16 = c10::ScalarType::Half;
constexpr auto kBFloat16 = c10::ScalarType::BFloat16;

const std::vector<Operator> kSoftmax{Operator::softmax};
const std::vector<Operator> kMasked{Operator::scaled_masked_softmax};
const std::vector<Direction> kForward{Direction::forward};
const std::vector<Direction> kBoth{Direction::forward, Direction::backward};

std::vector<Shape> shapes(std::initializer_list<std::string_view> texts) {
  std::vector<Shape> parsed;
  for (const std::string_view text : texts) {
    parsed.push_back(parse_shape(text).value());
  }
  return parsed;
}

// Columns from 32 to 262144 in powers of two, each with its odd neighbour, and GPT-2's vocabulary;
// rows for about 2^26 elements.
std::vector<Shape> sweep_shapes() {
  constexpr int64_t kElements = int64_t{1} << 26;
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

std::vector<Entry> seed() {
  return {{kSoftmax, shapes({"1024x8192"}), {kFloat32}, {Mask::none}, kForward},
          {kMasked,
           shapes({"1x512x512", "1x1024x1024"}),
           {kFloat32},
           {Mask::none, Mask::causal, Mask::padding},
           kForward}};
}

std::vector<Entry> table() {
  const std::vector<c10::ScalarType> both{kFloat32, kBFloat16};
  return {{kSoftmax,
           shapes({"1024x8192", "65536x512", "65536x1024", "65536x1025", "16384x4096", "8192x8192",
                   "4096x32768", "4096x50257", "2048x131072", "512x262144"}),
           both,
           {Mask::none},
           kBoth},
          {kSoftmax, shapes({"16x1000003", "1x16777259"}), {kBFloat16}, {Mask::none}, kBoth},
          {kSoftmax, shapes({"64x4096x64@1"}), {kFloat32}, {Mask::none}, kBoth},
          {kMasked, shapes({"96x1024x1024"}), both, {Mask::causal}, kBoth},
          {kMasked, shapes({"12x4096x4096"}), {kBFloat16}, {Mask::causal}, kBoth},
          {kMasked, shapes({"8x12x1024x1024"}), {kBFloat16}, {Mask::padding}, kBoth},
          {kMasked, shapes({"1x12x1x1024"}), {kFloat16}, {Mask::positions}, kForward}};
}

std::vector<Entry> cpu() {
  return {{kSoftmax,
           shapes({"1024x8192", "4096x512", "512x50257", "64x1025", "65536x64", "64x1024x64@1"}),
           {kFloat32, kBFloat16, kFloat16},
           {Mask::none},
           kForward},
          {{Operator::log_softmax}, shapes({"512x50257"}), {kFloat32}, {Mask::none}, kForward},
          {kMasked,
           shapes({"12x1024x1024"}),
           {kFloat32, kBFloat16, kFloat16},
           {Mask::none, Mask::causal, Mask::boolean, Mask::additive},
           kForward}};
}

std::vector<Entry> sweep() {
  return {{kSoftmax, sweep_shapes(), {kFloat32, kBFloat16}, {Mask::none}, kForward}};
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"seed", "1024x8192, and attention's 512 and 1024 with none, causal, padding", seed()},
      {"table", "the shapes of docs/performance.md, forward and backward, for a GPU", table()},
      {"cpu", "smaller shapes, every kind of mask, for the CPU", cpu()},
      {"sweep", "32 to 262144 columns and odd neighbours, 64M elements each", sweep()}};
  return all;
}

}  // namespace warpfuse::host::bench
