#pragma once

#include "gpt2_step/step_values.cuh"

namespace warpfuse::cuda {

/// Product `index` of the step: kProducts for each layer, then the head.
template <typename T>
__device__ __forceinline__ StepProduct step_product(const StepValues<T>& values, int index) {
  const Gpt2StepArguments& a = values.a;
  const int layer = index / kProducts, width = a.width / kPack<T>, inner = a.inner / kPack<T>;
  const T* const before = values.input(layer);
  if (layer == a.layers) {
    return {a.head,  nullptr, a.norm_weight, a.norm_bias, before,
            nullptr, nullptr, a.outputs,     width,       Activation::none};
  }
  const StepLayer& of = a.layer[layer];
  const auto [qkv, heads, middle, inside, output] = values.layer(layer);
  switch (index % kProducts) {
    case kQkv:
      return {of.qkv.weight, of.qkv.bias, of.norm_1_weight, of.norm_1_bias, before,
              nullptr,       qkv,         3 * a.width,      width,          Activation::none};
    case kProjection:
      return {of.projection.weight,
              of.projection.bias,
              nullptr,
              nullptr,
              heads,
              before,
              middle,
              a.width,
              width,
              Activation::none};
    case kInner:
      return {of.inner.weight, of.inner.bias, of.norm_2_weight, of.norm_2_bias, middle,
              nullptr,         inside,        a.inner,          width,          a.activation};
    default:
      return {of.outer.weight, of.outer.bias, nullptr, nullptr, inside,
              middle,          output,        a.width, inner,   Activation::none};
  }
}

}  // namespace warpfuse::cuda
