// The random numbers themselves, and what dropout makes of them, on the CPU and by plain code.

#include <common/dropout.h>

#include <array>
#include <cmath>

#include "support/dropout.h"
#include "support/pch.h"

namespace {

using warpfuse::Dropout;
using warpfuse::Rng;

std::array<uint32_t, 4> words(const warpfuse::PhiloxBlock& block) {
  return {block.words[0], block.words[1], block.words[2], block.words[3]};
}

/// The threshold of 32 bits as one number.
uint64_t threshold(double p) {
  const Dropout dropout(p);
  return (uint64_t{dropout.upper} << 16) + dropout.lower;
}

}  // namespace

TEST_CASE("Philox gives the known answers of Random123", "[random-numbers]") {
  // philox4x32 with 7 rounds, from tests/kat_vectors of Random123 1.14: counter, key, result.
  using Words = std::array<uint32_t, 4>;
  CHECK(words(warpfuse::philox(0, 0, 0)) == Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  CHECK(words(warpfuse::philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0})) ==
        Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  // The digits of pi: the counter 243f6a88 85a308d3 13198a2e 03707344, the key a4093822 299f31d0.
  CHECK(words(warpfuse::philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e)) ==
        Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

TEST_CASE("the threshold is p times 2^32, and 1 drops all", "[random-numbers]") {
  for (const double p : {0.0, std::ldexp(1.0, -32), std::ldexp(1.0, -24), 1e-3, 0.1, 0.2, 0.5, 0.75,
                         0.999999, 1 - std::ldexp(1.0, -32), 1.0}) {
    INFO(p);
    CHECK(threshold(p) == static_cast<uint64_t>(std::llround(p * 4294967296.0)));
    CHECK(Dropout(p).scale == (p == 1.0 ? 0.0 : 1 / (1 - p)));
  }
}

TEST_CASE("an element is dropped where its number is below the threshold", "[random-numbers]") {
  // The number of 32 bits, put together as the definition says.
  const Rng rng{1234567890123, 4};
  const auto number = [&](uint64_t element) {
    const auto block = words(warpfuse::philox(rng.seed, element / 8, rng.offset));
    const uint32_t of_element = block[element % 8 / 2] >> (element % 2 * 16) >> 1 & 0x7fff;
    const uint32_t of_block = (block[0] + block[1] + block[2] + block[3]) >> 15;
    return of_element << 17 | of_block;
  };
  for (uint64_t element = 0; element < 4096; ++element) {
    const double exactly = number(element) / 4294967296.0;
    // The threshold just at the element's number, one below, one above, and some others.
    for (const double p : {exactly, exactly - std::ldexp(1.0, -32), exactly + std::ldexp(1.0, -32),
                           exactly + std::ldexp(1.0, -20), 0.2, 0.5, 0.0, 1.0}) {
      if (p < 0 || p > 1) {
        continue;
      }
      const bool kept = number(element) >= threshold(p);
      if (kept != is_kept(Dropout(p), rng, element)) {
        FAIL("element " << element << " at p = " << p << " should be "
                        << (kept ? "kept" : "dropped"));
      }
    }
  }
}
