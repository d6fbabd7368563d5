#include "gradcheck.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <sstream>

namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-7;

std::vector<at::Tensor> leaves(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& input : inputs) {
    result.push_back(input.detach().clone(at::MemoryFormat::Contiguous).set_requires_grad(true));
  }
  return result;
}

std::vector<at::Tensor> gradients(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                  const at::Tensor& weights, bool create_graph) {
  return torch::autograd::grad({output}, inputs, {weights}, /*retain_graph=*/create_graph,
                               create_graph);
}

}  // namespace

std::string gradient_mismatch(const Function& function, const std::vector<at::Tensor>& inputs) {
  const std::vector<at::Tensor> variables = leaves(inputs);
  const at::Tensor output = function(variables);
  const at::Tensor weights = at::randn(output.sizes(), at::kDouble).to(output.device());
  const std::vector<at::Tensor> analytic = gradients(output, variables, weights, false);

  for (size_t n = 0; n < inputs.size(); ++n) {
    for (int64_t i = 0; i < inputs[n].numel(); ++i) {
      const auto moved = [&](double step) {
        std::vector<at::Tensor> shifted = leaves(inputs);
        {
          const c10::AutoGradMode no_grad(false);
          shifted[n].view(-1)[i].add_(step);
        }
        return (function(shifted).detach() * weights).sum().item<double>();
      };
      const double numeric = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      const auto got = analytic[n].reshape(-1)[i].item<double>();
      if (!(std::abs(got - numeric) <= kTolerance * std::max(1.0, std::abs(numeric)))) {
        std::ostringstream text;
        text << "gradient of input " << n << " at element " << i << ": got " << got
             << ", central difference " << numeric;
        return text.str();
      }
    }
  }
  return "";
}

std::string second_gradient_mismatch(const Function& function,
                                     const std::vector<at::Tensor>& inputs) {
  const at::Tensor output = function(inputs).detach();
  std::vector<at::Tensor> extended = inputs;
  extended.push_back(at::randn(output.sizes(), at::kDouble).to(output.device()));
  const Function gradient = [&](const std::vector<at::Tensor>& all) {
    const std::vector<at::Tensor> arguments(all.begin(), all.end() - 1);
    std::vector<at::Tensor> flat;
    for (const at::Tensor& part : gradients(function(arguments), arguments, all.back(), true)) {
      flat.push_back(part.reshape(-1));
    }
    return at::cat(flat);
  };
  return gradient_mismatch(gradient, extended);
}
