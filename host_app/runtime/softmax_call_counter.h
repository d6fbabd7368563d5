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

// Calls of `work` that are not to count by themselves: a capture records them and runs nothing, a
// warm-up is no work that was asked for. They come back, for add_softmax_calls.
SoftmaxCalls uncounted_softmax_calls(const std::function<void()>& work);
// A replay of captured work runs them out of libtorch's sight.
void add_softmax_calls(const SoftmaxCalls& calls);

// Counts the softmax computations that run in the process while it lives, on any thread and by any
// library: aten's softmax, log_softmax and scaled_dot_product_attention, and the plugin's
// operators. It listens to libtorch's own record of operator calls, so that it does not depend on
// what the plugin says of itself. An operator that another counted one calls inside is part of that
// call.
class SoftmaxCensus {
 public:
  SoftmaxCensus();
  ~SoftmaxCensus();
  SoftmaxCensus(const SoftmaxCensus&) = delete;
  SoftmaxCensus& operator=(const SoftmaxCensus&) = delete;

  int64_t total() const;
  int64_t by_plugin() const;

 private:
  at::CallbackHandle handle_;
  int64_t total_before_;
  int64_t by_plugin_before_;
};

enum class SoftmaxKind { none, aten, plugin };

// What an operator, "namespace::name", counts as.
SoftmaxKind softmax_kind(std::string_view operator_name);

}  // namespace warpfuse::host
