#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace warpfuse::host {

struct SoftmaxCalls {
  int64_t total = 0;
  int64_t by_plugin = 0;
};

// Runs `work` uncounted and returns its softmax calls: a capture computes nothing, so its calls are
// added at each replay, and a warm-up's not at all.
SoftmaxCalls uncounted_softmax_calls(const std::function<void()>& work);
// Adds the calls of a replay, which libtorch does not see.
void add_softmax_calls(const SoftmaxCalls& calls);

// Counts the softmax computations that run in the process while it lives, on any thread and by any
// library: aten's softmax, log_softmax and scaled_dot_product_attention, and the plugin's
// operators. It uses libtorch's own record of operator calls, so that it does not depend on the
// plugin. An operator that a counted operator calls is part of that call.
class SoftmaxCallCounter {
 public:
  SoftmaxCallCounter();
  ~SoftmaxCallCounter();
  SoftmaxCallCounter(const SoftmaxCallCounter&) = delete;
  SoftmaxCallCounter& operator=(const SoftmaxCallCounter&) = delete;

  int64_t total() const;
  int64_t by_plugin() const;

 private:
  at::CallbackHandle handle_;
  int64_t total_before_;
  int64_t by_plugin_before_;
};

enum class SoftmaxKind { none, aten, plugin };

// Classifies an operator, "namespace::name".
SoftmaxKind softmax_kind(std::string_view operator_name);

}  // namespace warpfuse::host
