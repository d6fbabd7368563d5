#pragma once

// The operators with dropout as tests call them, and what they should give for a known mask.

#include <ATen/ATen.h>
#include <common/dropout.h>
#include <warpfuse/dropout_softmax.h>
#include <warpfuse/scaled_masked_softmax_dropout.h>

#include <optional>
#include <string>
#include <tuple>

#include "reference.h"

/// A call of dropout_softmax or softmax_dropout.
struct DropoutCall {
  int64_t dim = -1;
  double p = 0.5;
  bool softmax_first = false;
};

std::string describe(const DropoutCall& call);

/// Seed and offset as the operators take them.
at::Tensor rng_of(int64_t seed, int64_t offset, const at::Device& device);

// --- the private operators ----------------------------------------------------------------------

/// Output, statistics, rng.
using DropoutResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

DropoutResult dropout_softmax(const at::Tensor& self, const DropoutCall& call,
                              const std::optional<at::Tensor>& rng = std::nullopt);
at::Tensor dropout_softmax_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                                    const at::Tensor& statistics, const at::Tensor& rng,
                                    const DropoutCall& call);
std::tuple<at::Tensor, at::Tensor> linear_dropout_softmax(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    double p, const std::optional<at::Tensor>& rng = std::nullopt, bool split = false);
DropoutResult masked_dropout(const at::Tensor& scores, const MaskArguments& arguments, double p,
                             const std::optional<at::Tensor>& rng = std::nullopt);
at::Tensor masked_dropout_backward(const at::Tensor& grad_output, const at::Tensor& scores,
                                   const at::Tensor& statistics, const at::Tensor& rng,
                                   const MaskArguments& arguments, double p);
at::Tensor dropout_mask(const at::Tensor& like, double p, const at::Tensor& rng);

/// Whether an element is kept, by plain code.
bool is_kept(const warpfuse::Dropout& dropout, const warpfuse::Rng& rng, uint64_t element);

/// The mask of a call times what is kept is scaled by, in float64; element by element, by plain
/// code on the CPU.
at::Tensor plain_factors(at::IntArrayRef sizes, double p, const at::Tensor& rng);

// --- expectations, from finite inputs and the factors of the mask -------------------------------

Expected expected_dropout_softmax(const at::Tensor& self, const at::Tensor& factors,
                                  const DropoutCall& call);
/// `saved` as the backward operator takes it.
Expected expected_dropout_softmax_backward(const at::Tensor& grad_output, const at::Tensor& saved,
                                           const at::Tensor& factors, const DropoutCall& call);
Expected expected_masked_dropout(const at::Tensor& scores, const at::Tensor& factors,
                                 const MaskArguments& arguments);
Expected expected_masked_dropout_backward(const at::Tensor& grad_output, const at::Tensor& scores,
                                          const at::Tensor& factors,
                                          const MaskArguments& arguments);
