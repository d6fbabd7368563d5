#pragma once

#include <cmath>

#include "common/logit_key.h"
#include "sample_tokens/sample_tokens.h"

namespace warpfuse {

// Every operation is written out and rounds once, as IEEE 754 says: contraction of a product and a
// sum by one compiler and not by another would draw different tokens. (The CPU's file is compiled
// with -ffp-contract=off.)

WARPFUSE_HOST_DEVICE inline double rounded_sum(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
WARPFUSE_HOST_DEVICE inline double rounded_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
WARPFUSE_HOST_DEVICE inline double fused_product_sum(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// The upper 64 bits of a product.
WARPFUSE_HOST_DEVICE inline uint64_t upper_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
#endif
}

/// Probabilities are integers (masses) in units of 2^-43 of the likeliest token's: their sums are
/// exact in any order, and sums of kMaxColumns tokens fit 63 bits.
inline constexpr unsigned kMassBits = 43;
static_assert(uint64_t{kMaxColumns} << kMassBits == uint64_t{1} << 63);

/// A polynomial in f by Horner's rule, from the highest coefficient on.
template <typename... Coefficients>
WARPFUSE_HOST_DEVICE inline double polynomial(double f, double value, Coefficients... others) {
  ((value = fused_product_sum(value, f, others)), ...);
  return value;
}

/// 2^y, in units of 2^-43, rounded; y <= 0.
WARPFUSE_HOST_DEVICE inline uint64_t power_of_two_mass(double y) {
  constexpr double kRound = 0x1.8p52;  // rounds a sum to an integer, in the lowest bits
  constexpr double kInteger = 0x1p52;  // from here on all numbers are integers
  constexpr double kMin = -45;         // from here down the mass is 0
  y = y > kMin ? y : kMin;
  const double rounded = rounded_sum(y, kRound);
  const double f = rounded_sum(y, -rounded_sum(rounded, -kRound));
  // 2^f for -1/2 <= f <= 1/2, off by 2^-50 at most: the polynomial through the Chebyshev nodes of
  // (2^f - 1) / f, so that 2^0 is 1.
  constexpr double kSlope = 0x1.62e42fefa39f7p-1;  // NOLINT(modernize-use-std-numbers): not ln 2
  const double power =
      polynomial(f, 0x1.e5e9f548e5725p-28, 0x1.b6571de2f2351p-24, 0x1.62bfe46117445p-20,
                 0x1.ffcb76789860fp-17, 0x1.4309130378460p-13, 0x1.5d87fe908f88ap-10,
                 0x1.3b2ab6fba385fp-7, 0x1.c6b08d7044119p-5, 0x1.ebfbdff82c590p-3, kSlope, 1.0);
  const uint64_t exponent = same_bits<uint64_t>(rounded) - same_bits<uint64_t>(kRound) + kMassBits;
  const auto mass = same_bits<double>(same_bits<uint64_t>(power) + (exponent << 52));
  return same_bits<uint64_t>(rounded_sum(mass, kInteger)) - same_bits<uint64_t>(kInteger);
}

/// The masses of a row's tokens. The row's largest key `max` is neither NaN nor -inf.
template <typename Format>
class TokenMass {
 public:
  using Key = Format::Key;

  WARPFUSE_HOST_DEVICE TokenMass(Key max, double scale)
      : max_(max),
        largest_(max == Format::kInfinity ? static_cast<double>(INFINITY) : Format::value(max)),
        scale_(scale) {}

  /// The mass of a key that is not -inf.
  WARPFUSE_HOST_DEVICE uint64_t operator()(Key key) const {
    const double below = rounded_sum(Format::value(key), -largest_);
    // The difference of infinite logits is NaN.
    return power_of_two_mass(key == max_ ? 0.0 : rounded_product(below, scale_));
  }

 private:
  Key max_;
  double largest_;
  double scale_;
};

}  // namespace warpfuse
