#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <optional>
#include <tuple>

#include "common/check.h"
#include "common/registration.h"
#include "core/calls.h"

namespace warpfuse {

/// Whether a gradient of an argument may be asked for, or a tangent is there.
inline bool differentiates(const at::Tensor& tensor) {
  return tensor.defined() &&
         ((c10::GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(0).defined());
}
inline bool differentiates(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && differentiates(*tensor);
}
template <typename T>
bool differentiates(const T& /*no tensor*/) {
  return false;
}

/// The Autograd kernel of the operator Node::kName with this signature (core/calls.h). Node has
///
///   static void save(AutogradContext*, const variable_list& outputs, args...)
///   static variable_list backward(AutogradContext*, const variable_list& grads)
///   static variable_list jvp(const variable_list& outputs, const variable_list& tangents, args...)
///
/// The forward is the operator itself below autograd. save() keeps what backward() needs.
/// backward() returns a gradient per tensor argument, optional ones included; jvp() takes as many
/// tangents and returns one per output. Gradients and tangents are undefined where there is none. A
/// call that nothing differentiates makes no node.
///
/// torch::autograd::Function has no forward-mode AD in C++ and refuses functorch's transforms
/// (torch.func). functorch calls Autograd kernels once per level of its transforms, with that
/// level's tensors, so grad mode stays on in the forward: to switch it off would switch off outer
/// levels as well.
template <class Node, typename Signature>
class AutogradNode;

template <class Node, typename Result, typename... Args>
class AutogradNode<Node, Result(Args...)> : public Calls<Node, Result(Args...)> {
 public:
  using AutogradContext = torch::autograd::AutogradContext;
  using variable_list = torch::autograd::variable_list;

  static constexpr bool is_traceable = false;

  static void register_in(torch::Library& m) {
    m.impl(Node::kName, TORCH_FN(kernel_of<&autograd>));
  }

  /// The operator without a node; `keys` are those that the Autograd kernel was called with.
  static Result below_autograd(c10::DispatchKeySet keys, const Args&... args) {
    at::AutoDispatchBelowADInplaceOrView below;
    return Node::redispatch(keys & c10::after_autograd_keyset, args...);
  }

  static Result apply(const Args&... args) {
    const std::shared_ptr<torch::autograd::CppNode<Node>> node(new torch::autograd::CppNode<Node>(),
                                                               torch::autograd::deleteNode);
    variable_list inputs;
    with_fields([&](const auto&... fields) { (add_input(*node, inputs, fields), ...); }, args...);
    const bool recorded =
        c10::GradMode::is_enabled() && torch::autograd::any_variable_requires_grad(inputs);
    node->set_ctx_grad_fn(node);
    node->set_next_edges(recorded ? torch::autograd::collect_next_edges(inputs)
                                  : torch::autograd::edge_list());
    node->clear_input_metadata();

    variable_list outputs = forward(args...);
    Node::save(&node->ctx_, outputs, args...);
    const auto jvp = [&](const variable_list&, const variable_list& input_tangents) {
      variable_list tangents;
      auto next = input_tangents.begin();
      for (const bool given : node->is_variable_input_) {
        tangents.push_back(given ? *next++ : at::Tensor());
      }
      return Node::jvp(outputs, tangents, args...);
    };
    auto wrapped = torch::autograd::_wrap_outputs(
        inputs, node->ctx_.get_non_differentiable(), node->ctx_.get_and_bump_dirty(),
        torch::autograd::to_optional(outputs), recorded ? node : nullptr, jvp, {},
        [](const at::Tensor& x) { return x.view_as(x); }, /*pure_view=*/false);
    const auto results = torch::autograd::to_output_type<variable_list>(wrapped);
    if (recorded) {
      for (const at::Tensor& result : results) {
        node->output_info_.emplace_back(result);
      }
      node->save_variables_to_ctx();
    }
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return results[0];
    } else {
      return [&]<size_t... i>(std::index_sequence<i...>) {
        return Result(results[i]...);
      }(std::make_index_sequence<std::tuple_size_v<Result>>());
    }
  }

 private:
  static Result autograd(c10::DispatchKeySet keys, Args... args) {
    const bool follows =
        with_fields([](const auto&... fields) { return (differentiates(fields) || ...); }, args...);
    return follows ? apply(args...) : below_autograd(keys, args...);
  }

  static variable_list forward(const Args&... args) {
    at::AutoDispatchBelowADInplaceOrView below;
    if constexpr (std::is_same_v<Result, at::Tensor>) {
      return {Node::call(args...)};
    } else {
      return std::apply([](const auto&... outputs) { return variable_list{outputs...}; },
                        Node::call(args...));
    }
  }

  static void add_input(torch::autograd::CppNode<Node>& node, variable_list& inputs,
                        const std::optional<at::Tensor>& tensor) {
    const bool given = tensor.has_value() && tensor->defined();
    node.is_variable_input_.push_back(given);
    if (given) {
      node.input_info_.emplace_back(*tensor);
      inputs.push_back(*tensor);
    }
  }
  template <typename T>
  static void add_input(torch::autograd::CppNode<Node>& node, variable_list& inputs,
                        const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor>) {
      add_input(node, inputs, std::optional<at::Tensor>(argument));
    }
  }
};

/// An operator that is itself a backward and has no derivative: its node says so.
template <class Node, typename Signature>
class OnceDifferentiable;

template <class Node, typename Result, typename... Args>
class OnceDifferentiable<Node, Result(Args...)> : public AutogradNode<Node, Result(Args...)> {
 public:
  using variable_list = torch::autograd::variable_list;

  static constexpr const char* kArgument = "grad_output";  // that the error names

  static void save(torch::autograd::AutogradContext* /*context*/, const variable_list& /*outputs*/,
                   const Args&... /*args*/) {}

  static variable_list backward(torch::autograd::AutogradContext* /*context*/,
                                const variable_list& /*grads*/) {
    return refuse();
  }

  static variable_list jvp(const variable_list& /*outputs*/, const variable_list& /*tangents*/,
                           const Args&... /*args*/) {
    return refuse();
  }

 private:
  static variable_list refuse() {
    WARPFUSE_CHECK(false, Node::kName, Node::kArgument,
                   "one differentiation (there is no double backward)", "a second");
  }
};

}  // namespace warpfuse
