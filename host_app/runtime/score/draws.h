#pragma once

#include <ATen/core/Generator.h>

#include <functional>

#include "runtime/score/verification.h"

namespace warpfuse::host {

// Inputs of a model to make at random, and their name in a table.
struct Draw {
  std::string name;
  std::vector<InputSpec> inputs;
};

// Made on the CPU, so that every device gets the same numbers.
std::vector<at::Tensor> random_inputs(const Draw& draw, at::Generator& generator,
                                      c10::Device device);

// All tensors that a model makes of its inputs. Throws Error(model) if it cannot take them.
using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// The method forward, on copies of the inputs.
Forward forward_of(const torch::jit::Module& module);
// The logits of `forward` and `prefill` for token ids [B, T].
Forward forward_of(const LanguageModel& model);

// Gives both models the same inputs, from the same seed of libtorch's generators, for models that
// use random numbers.
std::vector<StepComparison> compare_draws(const Forward& model, const Forward& reference,
                                          const std::vector<Draw>& draws, c10::Device device,
                                          uint64_t seed);

}  // namespace warpfuse::host
