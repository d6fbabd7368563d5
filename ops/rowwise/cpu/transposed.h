#pragma once

#include <cstdint>

#include "rowwise/cpu/vector.h"
#include "rowwise/layout.h"

namespace warpfuse::WARPFUSE_ISA {

/// A block of up to kRows short rows of T as [columns, kRows], so that each lane of a vector holds
/// an element of another row; or values of type V of its elements.
template <typename T, typename V = T>
class TransposedBlock {
 public:
  static constexpr int64_t kRows = 4 * kPackSize<T>;

  explicit TransposedBlock(int64_t columns) : columns_(columns) {}

  V* data() { return values_; }
  RowLayout layout() const { return {1, columns_, kRows}; }

  /// from: [rows, columns]
  void read(const V* from, int64_t rows) {
    for (int64_t column = 0; column < columns_; ++column) {
      for (int64_t row = 0; row < rows; ++row) {
        values_[column * kRows + row] = from[row * columns_ + column];
      }
    }
  }

  /// to: [rows, columns]
  void write(V* to, int64_t rows) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns_; ++column) {
        to[row * columns_ + column] = values_[column * kRows + row];
      }
    }
  }

 private:
  int64_t columns_;
  alignas(kLineBytes) V values_[kTransposedColumns * kRows];
};

}  // namespace warpfuse::WARPFUSE_ISA
