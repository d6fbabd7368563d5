#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <type_traits>

namespace warpfuse {

/// torch::autograd::Function<T> that serves forward-mode AD and functorch's transforms (torch.func)
/// too, which libtorch's own refuses in C++. T has beside forward() and backward()
///
///   variable_list jvp(const variable_list& outputs, const variable_list& tangents, args...)
///
/// outputs and args are forward()'s; tangents are those of args, undefined where there is none. It
/// returns a tangent per output, undefined where that has no gradient.
///
/// apply() belongs in Autograd kernels alone: functorch calls them once per level of its
/// transforms, with that level's tensors. forward() calls operators below autograd itself, and is
/// not run without grad mode: that would switch off outer levels as well.
template <class T>
struct AutogradFunction {
  static constexpr bool is_traceable = false;

  template <typename... Args>
  static auto apply(const Args&... args) {
    using torch::autograd::variable_list;
    const std::shared_ptr<torch::autograd::CppNode<T>> node(new torch::autograd::CppNode<T>(),
                                                            torch::autograd::deleteNode);
    variable_list inputs;
    torch::autograd::extract_vars(node->is_variable_input_, inputs, args...);
    const bool recorded =
        c10::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(inputs);
    node->set_ctx_grad_fn(node);
    node->set_next_edges(recorded ? torch::autograd::collect_next_edges(inputs)
                                  : torch::autograd::edge_list());
    node->clear_input_metadata();
    for (const at::Tensor& input : inputs) {
      node->input_info_.emplace_back(input);
    }

    auto outputs = T::forward(&node->ctx_, args...);
    const auto jvp = [&](const variable_list&, const variable_list& of_inputs) {
      variable_list tangents;
      auto next = of_inputs.begin();
      for (const bool is_tensor : node->is_variable_input_) {
        tangents.push_back(is_tensor ? *next++ : at::Tensor());
      }
      return T::jvp(variable_list{outputs}, tangents, args...);
    };
    auto wrapped = torch::autograd::_wrap_outputs(
        inputs, node->ctx_.get_non_differentiable(), node->ctx_.get_and_bump_dirty(),
        torch::autograd::to_optional(outputs), recorded ? node : nullptr, jvp, {},
        [](const at::Tensor& x) { return x.view_as(x); }, /*pure_view=*/false);
    if (recorded) {
      for (const auto& output : wrapped) {
        node->output_info_.emplace_back(*output);
      }
      node->save_variables_to_ctx();
    }
    return torch::autograd::to_output_type<decltype(outputs)>(wrapped);
  }
};

}  // namespace warpfuse
