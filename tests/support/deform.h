#pragma once

// Inputs and references of ms_deform_attn.

#include <ATen/ATen.h>
#include <warpfuse/ms_deform_attn.h>

#include <string>
#include <utility>
#include <vector>

#include "reference.h"

/// Until the scope ends.
class DeterministicAlgorithms {
 public:
  explicit DeterministicAlgorithms(bool on)
      : before_(at::globalContext().deterministicAlgorithms()),
        warn_only_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  }
  ~DeterministicAlgorithms() {
    at::globalContext().setDeterministicAlgorithms(before_, warn_only_);
  }
  DeterministicAlgorithms(const DeterministicAlgorithms&) = delete;
  DeterministicAlgorithms& operator=(const DeterministicAlgorithms&) = delete;

 private:
  bool before_, warn_only_;
};

struct DeformShape {
  int64_t batches = 2, queries = 5, heads = 3, channels = 8, points = 2;
  std::vector<std::pair<int64_t, int64_t>> levels = {{6, 4}, {3, 5}};

  int64_t pixels() const;
  std::string text() const;
};

struct DeformInputs {
  at::Tensor value, shapes, starts, locations, weights;

  /// Random, with locations in [-0.2, 1.2]. Locations and weights in their own dtypes.
  DeformInputs(const DeformShape& shape, at::ScalarType dtype, const at::Device& device,
               at::ScalarType location_dtype, at::ScalarType weight_dtype);
  DeformInputs(const DeformShape& shape, at::ScalarType dtype, const at::Device& device)
      : DeformInputs(shape, dtype, device, dtype, dtype) {}

  at::Tensor attend() const {
    return warpfuse::ms_deform_attn(value, shapes, starts, locations, weights);
  }
  at::Tensor attend_softmax() const {
    return warpfuse::ms_deform_attn_softmax(value, shapes, starts, locations, weights);
  }
};

/// By grid_sampler, in float64 on the CPU. It can be differentiated.
at::Tensor deform_reference(const at::Tensor& value, const at::Tensor& shapes,
                            const at::Tensor& locations, const at::Tensor& weights);

/// Softmax over a row's levels and points.
at::Tensor deform_softmax(const at::Tensor& logits);

/// The result of grid_sampler.
Expected expected_deform(const DeformInputs& inputs, bool softmax = false);

/// Compares a contiguous tensor of the value's dtype, as mismatch() does.
std::string deform_mismatch(const at::Tensor& output, const DeformInputs& inputs,
                            const Expected& expected);
std::string deform_mismatch(const at::Tensor& output, const DeformInputs& inputs,
                            bool softmax = false);
