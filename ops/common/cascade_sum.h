#pragma once

#include "common/host_device.h"

namespace warpfuse {

/// A sum whose rounding error does not grow with the number of its terms up to some thousands:
/// terms are added up in blocks of 64, and the blocks to the total. V is a number or a vector.
template <typename V>
class CascadeSum {
 public:
  WARPFUSE_HOST_DEVICE explicit CascadeSum(V zero) : zero_(zero), total_(zero), block_(zero) {}

  WARPFUSE_HOST_DEVICE void add(V term) {
    block_ = block_ + term;
    if (++terms_ == 64) {
      total_ = total_ + block_;
      block_ = zero_;
      terms_ = 0;
    }
  }

  WARPFUSE_HOST_DEVICE void scale(V factor) {
    total_ = total_ * factor;
    block_ = block_ * factor;
  }

  WARPFUSE_HOST_DEVICE V value() const { return total_ + block_; }

 private:
  V zero_;
  V total_;
  V block_;
  int terms_ = 0;
};

}  // namespace warpfuse
