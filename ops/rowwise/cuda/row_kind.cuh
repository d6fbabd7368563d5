#pragma once

#include <type_traits>

#include "rowwise/cuda/row_function.cuh"
#include "rowwise/kernel_set.h"

namespace warpfuse::cuda {

/// The kind of a function, on which its kernels and its plan depend. Dropout-first in half
/// precision edits packed bits in place and fits plain softmax's tuning lines.
template <RowFunction Function>
constexpr RowKind kKind = {Function::kInputs == 1 ? Direction::forward : Direction::backward,
                           sizeof(typename Function::T),
                           !kHasRules<Function> && std::is_empty_v<typename Function::KeepMask>,
                           kHasRules<Function>,
                           !std::is_empty_v<typename Function::KeepMask> &&
                               !(kPrepares<Function> && !kFragmentFitsRaw<Function>),
                           kHasMaskTensor<Function>};

/// The kernels that it is compiled with.
template <typename Function>
constexpr KernelSet kKernels = kernel_set(kKind<Function>);

}  // namespace warpfuse::cuda
