#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/host_device.h"

namespace warpfuse {

template <typename To, typename From>
WARPFUSE_HOST_DEVICE inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

/// The bits of a dtype: a sign, an exponent, and kMantissa bits of mantissa. The kernels work on
/// keys: integers in the order of the logits, equal where logits are equal (-0 and 0 too), the same
/// on every processor.
template <typename BitsType, unsigned kMantissa>
struct LogitFormat {
  using Bits = BitsType;
  using Key = std::conditional_t<sizeof(Bits) == 8, int64_t, int32_t>;

  static constexpr unsigned kExponent = 8 * sizeof(Bits) - 1 - kMantissa;
  static constexpr Bits kSign = static_cast<Bits>(uint64_t{1} << (kMantissa + kExponent));
  static constexpr Key kInfinity = static_cast<Key>(((uint64_t{1} << kExponent) - 1) << kMantissa);
  static constexpr Key kNaN = kInfinity + 1;  // any NaN; above all others, so that max finds it
  static constexpr Bits kMinusInfinity = static_cast<Bits>(kSign | kInfinity);

  WARPFUSE_HOST_DEVICE static Key key(Bits bits) {
    const Key magnitude = static_cast<Key>(bits & static_cast<Bits>(~kSign));
    const Key signed_key = (bits & kSign) != 0 ? -magnitude : magnitude;
    return magnitude > kInfinity ? kNaN : signed_key;
  }

  /// The exact value of a finite logit. A conversion might flush subnormal numbers.
  WARPFUSE_HOST_DEVICE static double value(Key key) {
    const auto magnitude = static_cast<uint64_t>(key < 0 ? -key : key);
    const uint64_t sign = key < 0 ? uint64_t{1} << 63 : 0;
    if constexpr (sizeof(Bits) == 8) {
      return same_bits<double>(magnitude | sign);
    } else {
      // Moves the exponent to double's bias. A subnormal number is read with the leading 1 of the
      // smallest normal one, which is then subtracted.
      constexpr uint64_t kBias = (uint64_t{1} << (kExponent - 1)) - 1;
      constexpr uint64_t kOne = uint64_t{1} << 52;
      constexpr uint64_t kMove = (1023 - kBias) * kOne;
      constexpr uint64_t kSmallest = kMove + kOne;
      const uint64_t moved = magnitude << (52 - kMantissa);
      const bool subnormal = magnitude < uint64_t{1} << kMantissa;
      const auto leading = same_bits<double>(subnormal ? kSmallest : uint64_t{0});
      const double size = same_bits<double>(moved + (subnormal ? kSmallest : kMove)) - leading;
      return same_bits<double>(same_bits<uint64_t>(size) | sign);
    }
  }
};

using Float64Format = LogitFormat<uint64_t, 52>;
using Float32Format = LogitFormat<uint32_t, 23>;
using Float16Format = LogitFormat<uint16_t, 10>;
using BFloat16Format = LogitFormat<uint16_t, 7>;

}  // namespace warpfuse
