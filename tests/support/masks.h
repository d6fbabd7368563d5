#pragma once

// Inputs and the common check of the scaled_masked_softmax tests.

#include <ATen/ATen.h>

#include <vector>

#include "catch.h"
#include "compare.h"
#include "inputs.h"
#include "operators.h"
#include "poison.h"

/// About one key in four hidden.
inline at::Tensor random_bool(at::IntArrayRef sizes, const at::Device& device) {
  return at::rand(sizes, at::kDouble).gt(0.25).to(device);
}

/// Normal values, one in five of them -inf.
inline at::Tensor random_additive(at::IntArrayRef sizes, at::ScalarType dtype,
                                  const at::Device& device) {
  return at::randn(sizes, at::kDouble)
      .masked_fill(at::rand(sizes, at::kDouble).lt(0.2), -kInf)
      .to(dtype)
      .to(device);
}

/// The same arguments with their tensors on another device.
inline MaskArguments to(const at::Device& device, MaskArguments arguments) {
  for (std::optional<at::Tensor>* tensor :
       {&arguments.attn_mask, &arguments.query_positions, &arguments.key_lengths}) {
    if (*tensor) {
      *tensor = (*tensor)->to(device);
    }
  }
  return arguments;
}

/// A boolean mask, an additive one of the scores' dtype, and an additive one of float32.
inline std::vector<at::Tensor> masks_of_all_kinds(at::IntArrayRef sizes, at::ScalarType dtype,
                                                  const at::Device& device) {
  std::vector<at::Tensor> masks = {random_bool(sizes, device),
                                   random_additive(sizes, dtype, device)};
  if (dtype != at::kFloat) {
    masks.push_back(random_additive(sizes, at::kFloat, device));
  }
  return masks;
}

/// Every shape that broadcasts to `full`: each dimension as it is or 1, and leading ones left out.
inline std::vector<std::vector<int64_t>> broadcast_shapes(const std::vector<int64_t>& full) {
  std::vector<std::vector<int64_t>> shapes;
  for (size_t rank = 0; rank <= full.size(); ++rank) {
    const std::vector<int64_t> tail(full.end() - static_cast<int64_t>(rank), full.end());
    for (size_t ones = 0; ones < (size_t{1} << rank); ++ones) {
      std::vector<int64_t> shape = tail;
      for (size_t d = 0; d < rank; ++d) {
        if (ones >> d & 1) {
          shape[d] = 1;
        }
      }
      shapes.push_back(shape);
    }
  }
  return shapes;
}

inline std::string describe(const MaskArguments& a) {
  const auto text = [](const char* name, const std::optional<at::Tensor>& tensor) {
    return tensor ? std::string(", ") + name + " " + describe(*tensor) : std::string();
  };
  return "scale " + std::to_string(a.scale) + text("attn_mask", a.attn_mask) + ", causal " +
         a.causal + text("query_positions", a.query_positions) +
         text("key_lengths", a.key_lengths) + ", window " + std::to_string(a.window) +
         (a.masked_value ? ", masked_value " + std::to_string(*a.masked_value) : std::string());
}

/// The forward pass on poisoned memory against the reference: its values, dtype and layout, and the
/// exact zeros of hidden keys.
inline void check_masked_softmax(const at::Tensor& scores, const MaskArguments& arguments) {
  INFO(describe(scores) << ", " << describe(arguments));
  const Poison poison;
  const at::Tensor output = masked_softmax(scores, arguments);
  CHECK(output.scalar_type() == scores.scalar_type());
  CHECK(output.is_contiguous());
  CHECK(mismatch(output, expected_masked_softmax(scores, arguments)) == "");
}
