// The tier span: attention whose keys are hidden by position alone. Spans that begin and end in,
// before and behind each slot of packs; scores of any size; and what the tier cannot take.

#include <rowwise/kernel_set.h>

#include <cmath>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/masks.h"
#include "support/pch.h"
#include "support/poison.h"
#include "support/reference.h"
#include "support/row_functions.h"

using warpfuse::Direction;

namespace {

constexpr std::array kSpanDtypes = {at::kFloat, at::kHalf, at::kBFloat16};

/// A way to run: so many lanes share a row.
struct Run {
  int threads, lane_packs, lanes;
};
constexpr Run kRuns[] = {{32, 4, 32}, {128, 4, 32}, {256, 8, 32}, {64, 4, 64},
                         {96, 8, 96}, {64, 1, 32},  {128, 1, 128}};

std::string text(const Run& run) {
  return c10::str("span ", run.threads, ' ', run.lane_packs, " 1 0");
}

/// Keys that fill all slots but for one pack: more than one warp's where a block shares the row.
int64_t keys_of(const Run& run, at::ScalarType dtype) {
  return (int64_t{run.lanes} * run.lane_packs - 1) * pack_of(dtype);
}

/// Whether the function has a kernel for this run. One that has not takes the next line that it can
/// follow, a line of the tier span too.
bool has_kernel(const Run& run, Direction direction, at::ScalarType dtype) {
  const warpfuse::KernelSet set =
      warpfuse::kernel_set(attention_kind(direction, c10::elementSize(dtype)));
  return (run.threads == run.lanes && run.lanes > 32 ? set.span_block : set.span_warp)
      .contains(run.lane_packs);
}

/// The tier and packs a lane of one launch.
template <typename Call>
void check_launch(const Run& run, Direction direction, at::ScalarType dtype, const Call& call) {
  const auto launches = launches_during(call);
  REQUIRE(launches.size() == 1);
  CHECK(launches[0]["tier"] == "span");
  if (has_kernel(run, direction, dtype)) {
    CHECK(launches[0]["lane_packs"] == run.lane_packs);
    CHECK(launches[0]["threads"] == run.threads);
  }
}

template <typename Call>
void check_another_tier(const Call& call) {
  const auto launches = launches_during(call);
  REQUIRE(launches.size() == 1);
  CHECK(launches[0]["tier"] != "span");
}

void check_both(const at::Tensor& scores, const MaskArguments& a, const Run& run) {
  INFO(describe(scores) << ", " << describe(a) << ", " << text(run));
  const TuningInUse tuning(tuning_with(text(run)));
  const at::Tensor grad = at::randn_like(scores);
  const Poison poison;
  at::Tensor output, gradient;
  const at::ScalarType dtype = scores.scalar_type();
  check_launch(run, Direction::forward, dtype, [&] { output = masked_softmax(scores, a); });
  check_launch(run, Direction::backward, dtype,
               [&] { gradient = masked_softmax_backward(grad, output, a); });
  CHECK(mismatch(output, expected_masked_softmax(scores, a)) == "");
  CHECK(mismatch(gradient, expected_masked_softmax_backward(grad, output, a)) == "");
}

}  // namespace

WARPFUSE_GPU_TEST("spans that begin and end around every slot", "[span][portable]") {
  for (const at::ScalarType dtype : kSpanDtypes) {
    const int64_t pack = pack_of(dtype);
    for (const Run& run : kRuns) {
      const int64_t slot = run.lanes * pack, keys = keys_of(run, dtype);
      std::vector<int64_t> last_keys;  // -1: none
      for (int64_t border = 0; border <= keys; border += slot) {
        for (const int64_t off : {-pack - 1, -pack, int64_t{-2}, int64_t{-1}, int64_t{0}, pack / 2,
                                  pack - 1, pack, 3 * pack + 1, slot / 2}) {
          if (const int64_t last = border + off; last >= -1 && last < keys) {
            last_keys.push_back(last);
          }
        }
      }
      last_keys.push_back(keys - 1);
      const auto queries = static_cast<int64_t>(last_keys.size());
      const at::Tensor positions = at::tensor(last_keys).view({1, queries}).to(device);
      const at::Tensor scores = random_tensor({1, 2, queries, keys}, dtype, device);
      check_both(scores, {.scale = 0.5, .query_positions = positions}, run);
      for (const int64_t window : {int64_t{1}, pack - 1, slot, slot + 3, keys - 1}) {
        check_both(scores, {.query_positions = positions, .window = window}, run);
      }
    }
  }
}

WARPFUSE_GPU_TEST("each query has its own span, whatever their number", "[span][portable]") {
  for (const Run& run : kRuns) {
    const int64_t keys = keys_of(run, at::kBFloat16);
    for (const int64_t queries : {1, 2, 3, 8, 65}) {
      for (const auto& [batch, heads] :
           std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 1}, {2, 5}}) {
        const at::Tensor scores =
            random_tensor({batch, heads, queries, keys}, at::kBFloat16, device);
        const at::Tensor lengths = at::randint(0, keys + 1, {batch}, at::kInt).to(device);
        check_both(scores, {.key_lengths = at::full_like(lengths, keys)}, run);
        check_both(scores, {.causal = "upper_left"}, run);
        check_both(scores, {.causal = "lower_right", .window = 21}, run);
        check_both(scores, {.causal = "lower_right", .key_lengths = lengths}, run);
      }
    }
  }
}

WARPFUSE_GPU_TEST("scores too large for one multiply-add, and rows that are not finite",
                  "[span][portable]") {
  for (const at::ScalarType dtype : kSpanDtypes) {
    const double most = finfo_max(dtype);
    for (const Run& run : {kRuns[1], kRuns[4], kRuns[6]}) {
      const int64_t keys = keys_of(run, dtype);
      const at::Tensor noise = random_tensor({1, 1, 24, keys}, at::kFloat, device);
      const auto row = [&](int i) { return noise.select(2, i); };
      row(0).fill_(-most);  // finfo.min everywhere: even
      row(1).fill_(-most).select(-1, 5).fill_(1.0);
      row(2).fill_(-kInf);
      row(3).fill_(-kInf).select(-1, 3).fill_(-7.0);
      row(4).select(-1, 9).fill_(kInf);
      row(5).select(-1, 9).fill_(kNaN);
      row(6).select(-1, 9).fill_(-kInf);
      row(7).fill_(most);
      row(8).add_(300.0);
      row(9).add_(-3000.0);
      row(10).mul_(1000.0);
      row(11).add_(30'000.0);
      row(12).select(-1, 0).fill_(-most);
      // The first keys are far above the others: warps of a block differ.
      row(13).narrow(-1, 0, 100).add_(500.0);
      row(14).narrow(-1, 0, 100).add_(80.0);
      row(15).fill_(0.0);
      const at::Tensor scores = noise.to(dtype), all_keys = at::full({1}, keys).to(device);
      // Products of float32 by powers of two are exact, as the reference's are.
      for (const double scale : {1.0, 0.125, 0x1p-10, dtype == at::kFloat ? 0x1p-7 : 0.7}) {
        for (const MaskArguments& a :
             {MaskArguments{.scale = scale, .key_lengths = all_keys},
              MaskArguments{.scale = scale, .causal = "lower_right"},
              MaskArguments{.scale = scale, .causal = "lower_right", .window = 37}}) {
          INFO(text(run));
          const TuningInUse tuning(tuning_with(text(run)));
          check_launch(run, Direction::forward, dtype, [&] { masked_softmax(scores, a); });
          check_masked_softmax(scores, a);
        }
      }
    }
  }
}

WARPFUSE_GPU_TEST("gradients beside NaN of hidden keys", "[span][portable]") {
  for (const at::ScalarType dtype : kSpanDtypes) {
    for (const Run& run : {kRuns[1], kRuns[4], kRuns[6]}) {
      const TuningInUse tuning(tuning_with(text(run)));
      const int64_t keys = keys_of(run, dtype);
      const at::Tensor scores = random_tensor({1, 2, 40, keys}, dtype, device);
      const MaskArguments a{.causal = "lower_right", .window = 50};
      const at::Tensor output = masked_softmax(scores, a);
      const at::Tensor grad = random_tensor({1, 2, 40, keys}, dtype, device);
      const Expected expected = expected_masked_softmax_backward(grad, output, a);
      const at::Tensor hidden = visible_keys(scores, a).logical_not().to(device);
      const at::Tensor planted = grad.masked_fill(hidden, kNaN);
      const Poison poison;
      at::Tensor gradient;
      check_launch(run, Direction::backward, dtype,
                   [&] { gradient = masked_softmax_backward(planted, output, a); });
      CHECK(mismatch(gradient, expected) == "");
      // A visible NaN is all visible keys' of its row, and no other's.
      planted.select(2, 7).masked_fill_(hidden.select(2, 7).logical_not(), kNaN);
      gradient = masked_softmax_backward(planted, output, a);
      CHECK(at::isnan(gradient.select(2, 7))
                .eq(hidden.select(2, 7).logical_not())
                .all()
                .item<bool>());
      CHECK_FALSE(at::isnan(gradient.select(2, 8)).any().item<bool>());
    }
  }
}

WARPFUSE_GPU_TEST("what the tier span cannot take goes on to others", "[span][portable]") {
  const Run run = kRuns[1];
  const TuningInUse tuning(tuning_with(text(run)));
  const MaskArguments causal{.causal = "lower_right"};
  const auto check = [&](const at::Tensor& scores, const MaskArguments& a) {
    INFO(describe(scores) << ", " << describe(a));
    check_another_tier([&] { masked_softmax(scores, a); });
    check_masked_softmax(scores, a);
  };
  const at::Tensor scores = random_tensor({1, 2, 9, 400}, at::kHalf, device);
  check_launch(run, Direction::forward, at::kHalf, [&] { masked_softmax(scores, causal); });
  for (const double scale : {0.0, -0.5}) {
    check(scores, {.scale = scale, .causal = "lower_right"});
  }
  check(scores, {.attn_mask = random_bool({9, 400}, device), .causal = "lower_right"});
  check(random_tensor({1, 2, 9, 401}, at::kHalf, device), causal);
  check(random_at(1, {1, 2, 9, 400}, at::kHalf, device), causal);
  check(random_tensor({1, 2, 9, 400}, at::kDouble, device), causal);
  check(random_tensor({1, 2, 9, 8200}, at::kHalf, device), causal);  // too long
  const at::Tensor output = masked_softmax(scores, causal);
  const at::Tensor grad = random_at(1, {1, 2, 9, 400}, at::kHalf, device);
  check_another_tier([&] {
    CHECK(mismatch(masked_softmax_backward(grad, output, causal),
                   expected_masked_softmax_backward(grad, output, causal)) == "");
  });
}
