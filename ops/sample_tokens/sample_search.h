#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/philox.h"
#include "sample_tokens/sample_mass.h"
#include "sample_tokens/sample_tokens.h"

namespace warpfuse {

/// Bits of a number without leading zeros.
WARPFUSE_HOST_DEVICE inline unsigned bit_length(uint64_t number) {
#ifdef __CUDA_ARCH__
  return 64 - static_cast<unsigned>(__clzll(static_cast<long long>(number)));
#else
  return static_cast<unsigned>(std::bit_width(number));
#endif
}

/// Radix search for the key K such that the keys >= K have a mass of at least `target`, and the
/// keys > K have less. It finds K's distance from the largest key digit by digit: for each digit
/// the caller adds the masses of keys by the digit's value and enters the value that reaches the
/// target.
template <typename Key, unsigned kDigitBits>
class KeySearch {
 public:
  static constexpr unsigned kDigits = 1U << kDigitBits;

  WARPFUSE_HOST_DEVICE KeySearch(Key max, Key min) : max_(max) {
    const unsigned bits = bit_length(distance(min));
    shift_ = bits > kDigitBits ? bits - kDigitBits : 0;
  }

  /// The digit of a key; kDigits for keys that differ in a digit found before.
  WARPFUSE_HOST_DEVICE unsigned digit(Key key) const {
    const Distance value = (distance(key) - found_) >> shift_;
    return value < digits_ ? static_cast<unsigned>(value) : kDigits;
  }

  /// Ends a digit: `digit` reaches the target, and the values above it have `mass`.
  WARPFUSE_HOST_DEVICE void enter(unsigned digit, uint64_t mass) {
    above_ += mass;
    found_ += static_cast<Distance>(digit) << shift_;
    done_ = shift_ == 0;
    const unsigned next = shift_ > kDigitBits ? shift_ - kDigitBits : 0;
    digits_ = Distance{1} << (shift_ - next);
    shift_ = next;
  }

  WARPFUSE_HOST_DEVICE bool done() const { return done_; }
  /// K.
  WARPFUSE_HOST_DEVICE Key key() const {
    return static_cast<Key>(static_cast<Distance>(max_) - found_);
  }
  /// The mass above K, as far as digits are found.
  WARPFUSE_HOST_DEVICE uint64_t above() const { return above_; }

 private:
  using Distance = std::make_unsigned_t<Key>;

  WARPFUSE_HOST_DEVICE Distance distance(Key key) const {
    return static_cast<Distance>(max_) - static_cast<Distance>(key);
  }

  Key max_;
  Distance found_ = 0;
  Distance digits_ = kDigits;
  unsigned shift_;
  bool done_ = false;
  uint64_t above_ = 0;
};

/// The tokens that may be drawn: keys above `bound`, and the first `ties` tokens of the key `tie`,
/// which is not above it. min_p cuts them further.
template <typename Key>
struct KeptKeys {
  Key bound;
  Key tie;
  uint64_t ties = 0;

  /// top_k keeps all tokens from the key of the k-th largest one on.
  WARPFUSE_HOST_DEVICE static KeptKeys from(Key key) { return {static_cast<Key>(key - 1), key, 0}; }

  /// top_p keeps the keys above K, which reaches `target`, and as many tokens of K as it takes.
  WARPFUSE_HOST_DEVICE static KeptKeys to(Key key, uint64_t above, uint64_t target, uint64_t mass) {
    return {key, key, (target - above + mass - 1) / mass};
  }
};

/// The minimum mass that top_p keeps: it drops at most 1 - top_p of the total.
WARPFUSE_HOST_DEVICE inline uint64_t mass_to_keep(uint64_t total, const SampleRule& rule) {
  return total - upper_product(total, rule.left_out);
}

/// 64 random bits of a row at a step.
WARPFUSE_HOST_DEVICE inline uint64_t random_bits(uint64_t seed, int64_t row, int64_t step) {
  const PhiloxBlock block = philox(seed, static_cast<uint64_t>(row), static_cast<uint64_t>(step));
  return static_cast<uint64_t>(block.words[1]) << 32 | block.words[0];
}

/// The integer of row `row`.
WARPFUSE_HOST_DEVICE inline int64_t row_integer(const RowIntegers& integers, int64_t row) {
  const int64_t i = row * integers.stride;
  return integers.is_int64 ? static_cast<const int64_t*>(integers.data)[i]
                           : static_cast<const int32_t*>(integers.data)[i];
}

/// The random bits of a row, from the call's seed, the row's name and its step.
WARPFUSE_HOST_DEVICE inline uint64_t random_bits(const SampleTokensArguments& arguments,
                                                 int64_t row) {
  const int64_t name = arguments.row_names != nullptr ? arguments.row_names[row] : row;
  return random_bits(arguments.seed, name, row_integer(arguments.step, row));
}

/// The place of a draw: within the mass of the tokens above the bound, in the order of their ids,
/// or behind it, among the ties, which have `tie_mass` each.
struct Draw {
  bool is_tie;
  uint64_t position;  // within the mass, or the index of the tie

  WARPFUSE_HOST_DEVICE Draw(uint64_t bits, uint64_t mass, uint64_t ties, uint64_t tie_mass) {
    const uint64_t at = upper_product(bits, mass + ties * tie_mass);
    is_tie = tie_mass > 0 && at >= mass;
    position = is_tie ? (at - mass) / tie_mass : at;
  }
};

}  // namespace warpfuse
