// What is dropped: the statistics of many draws, and that every operator drops what _dropout_mask
// says.

#include <cmath>

#include "support/compare.h"
#include "support/devices.h"
#include "support/dropout.h"
#include "support/inputs.h"
#include "support/pch.h"

namespace {

/// A mask of `elements`, as 0 and 1 in float64, of call `offset` with a seed.
at::Tensor drawn(int64_t elements, double p, int64_t seed, int64_t offset,
                 const at::Device& device) {
  const at::Tensor like = at::empty({1}, at::TensorOptions(device)).expand({elements});
  return dropout_mask(like, p, rng_of(seed, offset, device));
}

int64_t kept(const at::Tensor& mask) { return mask.count_nonzero().item<int64_t>(); }

/// By how many standard deviations `count` of `draws` is off, at a probability each.
double deviations(int64_t count, int64_t draws, double probability) {
  return (static_cast<double>(count) - static_cast<double>(draws) * probability) /
         std::sqrt(static_cast<double>(draws) * probability * (1 - probability));
}

/// The same for how often both masks keep an element: q * q of all, if they are independent.
double correlation(const at::Tensor& a, const at::Tensor& b, double p) {
  return deviations(kept(a.logical_and(b)), a.numel(), (1 - p) * (1 - p));
}

}  // namespace

WARPFUSE_DEVICE_TEST("the kept fraction of 10^8 elements", "[dropout][random-numbers]") {
  constexpr int64_t kDraws = 100'000'000;
  for (const double p : {0.2, 0.5, 0.1}) {
    INFO(p);
    CHECK(std::abs(deviations(kept(drawn(kDraws, p, 20, 0, device)), kDraws, 1 - p)) < 5);
  }
}

WARPFUSE_DEVICE_TEST("small and large p are honoured exactly", "[dropout][random-numbers]") {
  constexpr int64_t kDraws = 200'000'000;
  // With 15 bits alone 2^-24 would drop nothing or 256 times too much.
  for (const double p : {std::ldexp(1.0, -24), std::ldexp(1.0, -20), 1e-5}) {
    const int64_t dropped = kDraws - kept(drawn(kDraws, p, 21, 8, device));
    INFO(p << " drops " << dropped);
    CHECK(dropped > 0);
    CHECK(std::abs(deviations(dropped, kDraws, p)) < 5);
  }
  const int64_t left = kept(drawn(kDraws, 1 - std::ldexp(1.0, -20), 22, 8, device));
  INFO(left);
  CHECK(left > 0);
  CHECK(std::abs(deviations(left, kDraws, std::ldexp(1.0, -20))) < 5);
  CHECK(kept(drawn(1'000'000, 0.0, 1, 0, device)) == 1'000'000);
  CHECK(kept(drawn(1'000'000, 1.0, 1, 0, device)) == 0);
}

WARPFUSE_DEVICE_TEST("elements, rows, calls and seeds do not know of each other",
                     "[dropout][random-numbers]") {
  constexpr int64_t kDraws = 20'000'000;
  const double p = 0.3;
  const at::Tensor mask = drawn(kDraws, p, 23, 4, device);
  // Neighbours, those of the same place in the next Philox block, and rows of usual lengths.
  for (const int64_t distance : {1, 2, 3, 4, 7, 8, 9, 16, 64, 255, 256, 1024, 4096, 16384}) {
    INFO("distance " << distance);
    CHECK(std::abs(correlation(mask.slice(0, 0, kDraws - distance), mask.slice(0, distance), p)) <
          5);
  }
  for (const auto& [seed, offset] :
       std::vector<std::pair<int64_t, int64_t>>{{23, 5},
                                                {23, 8},
                                                {23, 12},
                                                {23, int64_t{4} << 32},
                                                {24, 4},
                                                {22, 4},
                                                {23 + (int64_t{1} << 32), 4},
                                                {-23, 4}}) {
    INFO("seed " << seed << ", offset " << offset);
    CHECK(std::abs(correlation(mask, drawn(kDraws, p, seed, offset, device), p)) < 5);
  }
  // Three neighbours at once.
  const at::Tensor three = mask.slice(0, 0, kDraws - 2)
                               .logical_and(mask.slice(0, 1, kDraws - 1))
                               .logical_and(mask.slice(0, 2));
  // Overlapping triples are not independent: three groups that are.
  for (int64_t start = 0; start < 3; ++start) {
    const at::Tensor group = three.slice(0, start, c10::nullopt, 3);
    CHECK(std::abs(deviations(kept(group), group.numel(), std::pow(1 - p, 3))) < 5);
  }
}

WARPFUSE_DEVICE_TEST("random numbers fall into equal shares equally often",
                     "[dropout][random-numbers]") {
  // The same elements at rising p: what is newly dropped has its number in that share.
  constexpr int64_t kDraws = 4'000'000, kShares = 256;
  for (const bool fine : {false, true}) {
    // Fine shares lie within one step of the upper 15 bits, and are decided by the lower ones.
    const double width = fine ? std::ldexp(1.0, -24) : 1.0 / kShares;
    const double start = fine ? 0.2 : 0.0;
    const int64_t draws = fine ? 25 * kDraws : kDraws;
    double chi_square = 0;
    int64_t before = kept(drawn(draws, start, 25, 0, device));
    const int64_t shares = fine ? 16 : kShares;
    for (int64_t share = 1; share <= shares; ++share) {
      const int64_t now = kept(
          drawn(draws, std::min(1.0, start + width * static_cast<double>(share)), 25, 0, device));
      const double expected = static_cast<double>(draws) * width;
      chi_square += std::pow(static_cast<double>(before - now) - expected, 2) / expected;
      before = now;
    }
    // Mean `shares`, standard deviation sqrt(2 * shares).
    INFO((fine ? "fine" : "coarse") << " shares, chi-square " << chi_square);
    CHECK(chi_square <
          static_cast<double>(shares) + 5 * std::sqrt(2.0 * static_cast<double>(shares)));
    CHECK(chi_square >
          static_cast<double>(shares) - 5 * std::sqrt(2.0 * static_cast<double>(shares)));
  }
}

WARPFUSE_DEVICE_TEST("the mask is that of plain code, on every device and in any shape",
                     "[dropout]") {
  for (const double p : {0.2, 0.5, 1e-4}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{1}, {7}, {8}, {9}, {3, 5, 7}, {100'003}, {}, {0, 4}}) {
      const at::Tensor rng = rng_of(123456789012345, 1 << 20, device);
      const at::Tensor like = at::empty(shape, at::TensorOptions(device));
      const at::Tensor mask = dropout_mask(like, p, rng);
      CHECK(mask.scalar_type() == at::kBool);
      CHECK(mask.sizes() == like.sizes());
      CHECK(bit_mismatch(mask.cpu(), plain_factors(shape, p, rng) != 0) == "");
    }
  }
  const at::Tensor rng = rng_of(-1, -1, device);  // all bits set are as good as others
  const at::Tensor like = at::empty({5, 33}, at::TensorOptions(device));
  CHECK(bit_mismatch(dropout_mask(like, 0.5, rng).cpu(), plain_factors({5, 33}, 0.5, rng) != 0) ==
        "");
  // Elements are counted in the contiguous tensor, whatever the strides.
  CHECK(bit_mismatch(dropout_mask(like.t(), 0.5, rng).cpu(),
                     plain_factors({33, 5}, 0.5, rng) != 0) == "");
  // An rng that is not contiguous.
  CHECK(bit_mismatch(dropout_mask(like, 0.5, at::stack({rng, rng}, 1).select(1, 0)),
                     dropout_mask(like, 0.5, rng)) == "");
}

WARPFUSE_DEVICE_TEST("every operator drops what _dropout_mask says", "[dropout]") {
  // A softmax of ones is never 0: zeros are what was dropped behind it. Before it a dropped element
  // is the smallest of its row.
  const double p = 0.4;
  for (const at::ScalarType dtype : kDtypes) {
    for (const auto& [shape, dim] :
         std::vector<std::pair<std::vector<int64_t>, int64_t>>{{{3, 33}, -1},
                                                               {{33, 3}, 0},
                                                               {{2, 5, 7}, 1},
                                                               {{4, 1000}, -1},
                                                               {{2, 9001}, -1},
                                                               {{1, 1025}, 1},
                                                               {{130, 31}, 1},
                                                               {{257, 12}, 0}}) {
      const at::Tensor ones = at::ones(shape, at::TensorOptions(device).dtype(dtype));
      for (const bool softmax_first : {false, true}) {
        const DropoutCall call{.dim = dim, .p = p, .softmax_first = softmax_first};
        const auto [output, statistics, rng] = dropout_softmax(ones, call);
        INFO(c10::toString(dtype) << " " << at::IntArrayRef(shape) << ", " << describe(call));
        const at::Tensor mask = dropout_mask(ones, p, rng);
        const at::Tensor seen = softmax_first ? output != 0 : output > output.amin(dim, true);
        // A row that is dropped or kept throughout tells nothing where dropout came first.
        const at::Tensor tells =
            softmax_first ? at::ones_like(mask)
                          : mask.any(dim, true).logical_and(mask.logical_not().any(dim, true));
        CHECK(seen.logical_and(tells).equal(mask.logical_and(tells)));
        CHECK(tells.sum().item<int64_t>() > 0);
      }
    }
    const at::Tensor scores = at::ones({2, 3, 5, 33}, at::TensorOptions(device).dtype(dtype));
    const auto [output, statistics, rng] = masked_dropout(scores, {}, p);
    CHECK((output != 0).equal(dropout_mask(scores, p, rng)));
  }
}
