#pragma once

#include <ATen/Context.h>

namespace warpfuse {

/// Whether matrix products of float32 on CUDA round their operands to TF32, as libtorch's do by the
/// same settings. (Context::allowTF32CuBLAS() throws where only the newer of them were made.)
inline bool matmul_rounds_to_tf32() {
  return !at::NoTF32Guard::should_disable_tf32() &&
         at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
             at::Float32Precision::TF32;
}

}  // namespace warpfuse
