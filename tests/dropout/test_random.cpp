// Calls that nobody chose: operators, shapes, dtypes, masks, alignments. WARPFUSE_TEST_SEED repeats
// a run, or makes another.

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_functions.h"

namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}

  int64_t up_to(int64_t last) { return std::uniform_int_distribution<int64_t>(0, last)(engine_); }
  bool chance(double share) { return std::bernoulli_distribution(share)(engine_); }
  /// 1 to `last`, each order of magnitude as often as the others.
  int64_t size(int64_t last) {
    const double exponent = std::uniform_real_distribution<>(0.0, std::log(last + 1.0))(engine_);
    return std::min(last, static_cast<int64_t>(std::exp(exponent)));
  }
  template <typename List>
  auto of(const List& list) {
    return *(std::begin(list) + up_to(static_cast<int64_t>(std::size(list)) - 1));
  }

 private:
  std::mt19937_64 engine_;
};

/// Random values that start anywhere.
at::Tensor drawn(Draw& draw, at::IntArrayRef shape, at::ScalarType dtype,
                 const at::Device& device) {
  return random_at(draw.chance(0.5) ? 0 : draw.up_to(9), shape, dtype, device);
}

MaskArguments mask_arguments(Draw& draw, at::IntArrayRef shape, at::ScalarType dtype,
                             const at::Device& device) {
  const int64_t batch = shape[0], queries = shape[2], keys = shape[3];
  const auto options = at::TensorOptions(device);
  MaskArguments a;
  a.scale = draw.of(std::vector<double>{1.0, 0.125, -0.5, 2.0});
  a.causal = draw.of(std::vector<std::string>{"none", "none", "upper_left", "lower_right"});
  if (draw.chance(0.3)) {
    a.query_positions = at::randint(-2, keys + 2, {batch, queries},
                                    options.dtype(draw.chance(0.5) ? at::kLong : at::kInt));
  }
  if (draw.chance(0.3)) {
    a.key_lengths =
        at::randint(0, keys + 1, {batch}, options.dtype(draw.chance(0.5) ? at::kLong : at::kInt));
  }
  if (draw.chance(0.2)) {
    a.window = draw.size(2 * keys);
  }
  if (draw.chance(0.6)) {
    // Each dimension as it is or one; leading ones may be left out; keys that do not lie together.
    std::vector<int64_t> sizes = shape.vec();
    for (int64_t& size : sizes) {
      size = draw.chance(0.5) ? size : 1;
    }
    sizes.erase(sizes.begin(), sizes.begin() + draw.up_to(2));
    const bool reversed = draw.chance(0.2);
    if (reversed) {
      std::swap(sizes.back(), sizes[sizes.size() - 2]);
    }
    at::Tensor mask = drawn(draw, sizes, at::kFloat, device);
    if (draw.chance(0.5)) {
      mask = mask > -1.5;
      if (draw.chance(0.4)) {
        a.masked_value = draw.of(std::vector<double>{-3.0, 0.5, -10'000.0});
      }
    } else {
      mask = mask.masked_fill(mask > 4.0, -kInf).to(draw.chance(0.5) ? dtype : at::kFloat);
    }
    a.attn_mask = reversed ? mask.transpose(-1, -2) : mask;
  }
  return a;
}

void check_plain(Draw& draw, at::ScalarType dtype, const at::Device& device) {
  const int64_t most = !device.is_cuda() ? 20'000 : draw.chance(0.1) ? 2'000'000 : 200'000;
  const int64_t columns = draw.size(most);
  const int64_t inner = draw.chance(0.3) ? draw.size(std::min<int64_t>(300, most / columns)) : 1;
  const int64_t outer = draw.size(most / columns / inner);
  const std::vector<int64_t> shape = {outer, columns, inner};
  const bool log = draw.chance(0.5);
  const bool backward = draw.chance(0.5);
  const at::Tensor x = drawn(draw, shape, dtype, device);
  INFO((log ? "log_softmax" : "softmax")
       << (backward ? " backward" : "") << " of " << describe(x) << " over dim 1");
  const Expected expected = expected_softmax(x, 1, log);
  if (!backward) {
    const Poison poison;
    CHECK(mismatch(log ? warpfuse::log_softmax(x, 1) : warpfuse::softmax(x, 1), expected) == "");
    return;
  }
  const at::Tensor y = drawn(draw, shape, dtype, device).copy_(expected.values);
  const Poison poison;
  const at::Tensor output = log ? log_softmax_backward(x, y, 1) : softmax_backward(x, y, 1);
  CHECK(mismatch(output, expected_softmax_backward(x, y, 1, log)) == "");
}

void check_masked(Draw& draw, at::ScalarType dtype, const at::Device& device) {
  const int64_t most = !device.is_cuda() ? 20'000 : draw.chance(0.1) ? 1'000'000 : 100'000;
  int64_t keys = draw.size(most);
  if (draw.chance(0.3)) {
    keys = std::max<int64_t>(8, keys / 8 * 8);  // whole packs of any dtype
  }
  const int64_t queries = draw.size(most / keys);
  const int64_t heads = draw.size(std::min<int64_t>(16, most / keys / queries));
  const int64_t batch = draw.size(std::min<int64_t>(5, most / keys / queries / heads));
  const std::vector<int64_t> shape = {batch, heads, queries, keys};
  const at::Tensor scores = drawn(draw, shape, dtype, device);
  const MaskArguments a = mask_arguments(draw, shape, dtype, device);
  INFO("scaled_masked_softmax of " << describe(scores) << ", " << describe(a));
  const Expected expected = expected_masked_softmax(scores, a);
  const Poison poison;
  CHECK(mismatch(masked_softmax(scores, a), expected) == "");
  const at::Tensor y = drawn(draw, shape, dtype, device).copy_(expected.values);
  CHECK(mismatch(masked_softmax_backward(scores, y, a),
                 expected_masked_softmax_backward(scores, y, a)) == "");
}

}  // namespace

WARPFUSE_DEVICE_TEST("random calls", "[random]") {
  const int calls = device.is_cuda() ? 2000 : 200;
  const char* asked = std::getenv("WARPFUSE_TEST_SEED");
  const uint64_t seed = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 20261121;
  std::cout << calls << " random calls: WARPFUSE_TEST_SEED=" << seed << "\n";
  at::manual_seed(seed);
  Draw draw(seed);
  std::vector<std::string> branches = {"cpu.rows", "cpu.column"};
  if (device.is_cuda()) {
    branches = {"tier.warp", "tier.span", "tier.block", "tier.stream", "tier.column"};
    if (row_limits().cluster_blocks > 1) {
      branches.emplace_back("tier.cluster");
    }
  }
  std::vector<CounterDelta> ran;
  for (const std::string& branch : branches) {
    ran.emplace_back(branch);
  }
  for (int call = 0; call < calls; ++call) {
    const at::ScalarType dtype = draw.of(kDtypes);
    INFO("call " << call << " of seed " << seed);
    if (draw.chance(0.5)) {
      check_plain(draw, dtype, device);
    } else {
      check_masked(draw, dtype, device);
    }
  }
  for (size_t i = 0; i < branches.size(); ++i) {
    INFO(branches[i]);
    CHECK(ran[i]() > 0);
  }
}
