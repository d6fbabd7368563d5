#pragma once

#include <ATen/Context.h>

#include "bench/case.h"

namespace warpfuse::host::bench {

// While one lives, matrix products of float32 may use TF32 if the row is one in tf32; in other rows
// libtorch's setting stays as it is.
class MatmulPrecision {
 public:
  explicit MatmulPrecision(const Case& c) : tf32_(c.tf32) {
    if (tf32_) {
      before_ = at::globalContext().allowTF32CuBLAS();
      at::globalContext().setAllowTF32CuBLAS(true);
    }
  }
  ~MatmulPrecision() {
    if (tf32_) {
      at::globalContext().setAllowTF32CuBLAS(before_);
    }
  }
  MatmulPrecision(const MatmulPrecision&) = delete;
  MatmulPrecision& operator=(const MatmulPrecision&) = delete;

 private:
  bool tf32_;
  bool before_ = false;
};

}  // namespace warpfuse::host::bench
