#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <string>
#include <utility>

#include "rowwise/mask_arguments.h"

namespace warpfuse {

/// Scale and masks of a call, kept in an autograd context beside `kFirst` other saved tensors.
template <int kFirst>
struct SavedMasks {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  double scale;
  std::optional<at::Tensor> attn_mask, query_positions, key_lengths;
  std::string causal;
  int64_t window;
  std::optional<double> masked_value;

  static void save(Context* context, Tensors tensors, double scale, const MaskArguments& masks) {
    tensors.push_back(masks.attn_mask.value_or(at::Tensor()));
    tensors.push_back(masks.query_positions.value_or(at::Tensor()));
    tensors.push_back(masks.key_lengths.value_or(at::Tensor()));
    context->save_for_backward(std::move(tensors));
    auto& data = context->saved_data;
    data["scale"] = scale;
    data["causal"] = std::string(masks.causal);
    data["window"] = masks.window;
    data["masked_value"] = masks.masked_value;
  }

  SavedMasks(Context* context, const Tensors& saved)
      : scale(context->saved_data["scale"].toDouble()),
        attn_mask(optional(saved[kFirst])),
        query_positions(optional(saved[kFirst + 1])),
        key_lengths(optional(saved[kFirst + 2])),
        causal(context->saved_data["causal"].toStringRef()),
        window(context->saved_data["window"].toInt()),
        masked_value(context->saved_data["masked_value"].toOptional<double>()) {}

  /// With this mask in place of its own, or its own again. For as long as both live.
  MaskArguments with(const std::optional<at::Tensor>& mask) const {
    return {mask, causal, query_positions, key_lengths, window, masked_value};
  }

 private:
  static std::optional<at::Tensor> optional(const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  }
};

}  // namespace warpfuse
