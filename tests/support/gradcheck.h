#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

using Function = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// Compares the gradients of `function` at float64 `inputs`, contracted with random weights, with
/// central differences. Returns an empty string when they agree, else the first disagreement.
std::string gradient_mismatch(const Function& function, const std::vector<at::Tensor>& inputs);

/// The same for the gradients' own gradients, with respect to the inputs and to the incoming
/// gradient.
std::string second_gradient_mismatch(const Function& function,
                                     const std::vector<at::Tensor>& inputs);
