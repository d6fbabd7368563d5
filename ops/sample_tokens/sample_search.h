#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "common/philox.h"
#include "sample_tokens/sample_mass.h"
#include "sample_tokens/sample_tokens_arguments.h"

namespace warpfuse {

/// Bits of a number without the zeros that it begins with.
WARPFUSE_HOST_DEVICE inline unsigned bit_length(uint64_t number) {
#ifdef __CUDA_ARCH__
  return 64 - static_cast<unsigned>(__clzll(static_cast<long long>(number)));
#else
  return static_cast<unsigned>(std::bit_width(number));
#endif
}

/// Looks for the key K at and above which lies a mass of `target`, and strictly above which lies
/// less. Digit by digit of K's distance from the largest key: the caller adds up the masses of the
/// keys under each value of the next digit, and says under which of them the target is reached.
template <typename Key, unsigned kDigitBits>
class KeySearch {
 public:
  static constexpr unsigned kDigits = 1U << kDigitBits;

  WARPFUSE_HOST_DEVICE KeySearch(Key max, Key min) : max_(max) {
    const unsigned bits = bit_length(distance(min));
    shift_ = bits > kDigitBits ? bits - kDigitBits : 0;
  }

  /// The digit of a key, or one that is none for keys that the digits found so far leave out.
  WARPFUSE_HOST_DEVICE unsigned digit(Key key) const {
    const Distance value = (distance(key) - found_) >> shift_;
    return value < digits_ ? static_cast<unsigned>(value) : kDigits;
  }

  /// The target is reached in `digit`, above which lies a mass of `mass` among the digits.
  WARPFUSE_HOST_DEVICE void enter(unsigned digit, uint64_t mass) {
    above_ += mass;
    found_ += static_cast<Distance>(digit) << shift_;
    done_ = shift_ == 0;
    const unsigned next = shift_ > kDigitBits ? shift_ - kDigitBits : 0;
    digits_ = Distance{1} << (shift_ - next);
    shift_ = next;
  }

  WARPFUSE_HOST_DEVICE bool done() const { return done_; }
  /// K, and the mass above it.
  WARPFUSE_HOST_DEVICE Key key() const {
    return static_cast<Key>(static_cast<Distance>(max_) - found_);
  }
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

/// What may be drawn: keys above `least`, and the first `ties` tokens whose key is `tie`, which is
/// not above it. All must have the rule's least mass.
template <typename Key>
struct KeptKeys {
  Key least;
  Key tie;
  uint64_t ties = 0;

  /// top_k: from the key K of the k-th largest token on.
  WARPFUSE_HOST_DEVICE static KeptKeys from(Key key) { return {static_cast<Key>(key - 1), key, 0}; }

  /// top_p: above the key K under which `target` is reached, and as many of K's tokens as it takes.
  WARPFUSE_HOST_DEVICE static KeptKeys to(Key key, uint64_t above, uint64_t target, uint64_t mass) {
    return {key, key, (target - above + mass - 1) / mass};
  }
};

/// The mass that top_p keeps at least, of a total: what it leaves out is at most 1 - top_p of it.
WARPFUSE_HOST_DEVICE inline uint64_t mass_to_keep(uint64_t total, const SampleRule& rule) {
  return total - upper_product(total, rule.left_out);
}

/// 64 random bits of a row at a step.
WARPFUSE_HOST_DEVICE inline uint64_t random_bits(uint64_t seed, int64_t row, int64_t step) {
  const PhiloxBlock block = philox(seed, static_cast<uint64_t>(row), static_cast<uint64_t>(step));
  return static_cast<uint64_t>(block.words[1]) << 32 | block.words[0];
}

/// Of number `row`.
WARPFUSE_HOST_DEVICE inline int64_t row_number(const RowNumbers& numbers, int64_t row) {
  const int64_t at = row * numbers.stride;
  return numbers.wide ? static_cast<const int64_t*>(numbers.data)[at]
                      : static_cast<const int32_t*>(numbers.data)[at];
}

/// The bits that the call's seed, the row's name and its step give.
WARPFUSE_HOST_DEVICE inline uint64_t random_bits(const SampleTokensArguments& arguments,
                                                 int64_t row) {
  const int64_t name = arguments.row_names != nullptr ? arguments.row_names[row] : row;
  return random_bits(arguments.seed, name, row_number(arguments.step, row));
}

/// Where the draw falls: in a mass of the tokens above `least`, in the order of their ids, or
/// behind it, in the ties, which have `tie_mass` each.
struct Draw {
  bool of_ties;
  uint64_t position;  // of the mass, or the number of the tie

  WARPFUSE_HOST_DEVICE Draw(uint64_t bits, uint64_t mass, uint64_t ties, uint64_t tie_mass) {
    const uint64_t at = upper_product(bits, mass + ties * tie_mass);
    of_ties = tie_mass > 0 && at >= mass;
    position = of_ties ? (at - mass) / tie_mass : at;
  }
};

}  // namespace warpfuse
