#include "runtime/softmax_call_counter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

namespace warpfuse::host {
namespace {

// Callbacks of libtorch are plain functions, so the counts are the process's.
std::atomic<int64_t> total_calls{0};
std::atomic<int64_t> plugin_calls{0};
thread_local int nesting = 0;

// Passed from the start of a counted operator to its end.
struct Counted : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  const SoftmaxKind kind = softmax_kind(function.name());
  if (kind == SoftmaxKind::none) {
    return nullptr;
  }
  if (nesting++ == 0) {
    total_calls.fetch_add(1, std::memory_order_relaxed);
    if (kind == SoftmaxKind::plugin) {
      plugin_calls.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return std::make_unique<Counted>();
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context != nullptr) {
    --nesting;
  }
}

}  // namespace

SoftmaxKind softmax_kind(std::string_view operator_name) {
  static constexpr std::array<std::string_view, 9> kAtenNames{
      "softmax",         "log_softmax",         "_softmax",
      "_log_softmax",    "_safe_softmax",       "_masked_softmax",
      "special_softmax", "special_log_softmax", "scaled_dot_product_attention"};
  static constexpr std::string_view kAten = "aten::";
  static constexpr std::string_view kPlugin = "warpfuse::";
  if (operator_name.starts_with(kAten)) {
    const std::string_view name = operator_name.substr(kAten.size());
    const bool counts = std::ranges::find(kAtenNames, name) != kAtenNames.end() ||
                        // The back ends of SDPA, which a graph may also call by name.
                        (name.starts_with("_scaled_dot_product_") && !name.ends_with("_backward"));
    return counts ? SoftmaxKind::aten : SoftmaxKind::none;
  }
  if (operator_name.starts_with(kPlugin)) {
    const std::string_view name = operator_name.substr(kPlugin.size());
    const bool counts =
        (name.find("softmax") != std::string_view::npos && !name.ends_with("_backward")) ||
        name == "gpt2_step";  // that of all its layers
    return counts ? SoftmaxKind::plugin : SoftmaxKind::none;
  }
  return SoftmaxKind::none;
}

void add_softmax_calls(const SoftmaxCalls& calls) {
  total_calls.fetch_add(calls.total, std::memory_order_relaxed);
  plugin_calls.fetch_add(calls.by_plugin, std::memory_order_relaxed);
}

SoftmaxCalls uncounted_softmax_calls(const std::function<void()>& work) {
  const SoftmaxCalls before{.total = total_calls, .by_plugin = plugin_calls};
  work();
  const SoftmaxCalls calls{.total = total_calls - before.total,
                           .by_plugin = plugin_calls - before.by_plugin};
  add_softmax_calls({.total = -calls.total, .by_plugin = -calls.by_plugin});
  return calls;
}

SoftmaxCallCounter::SoftmaxCallCounter()
    : handle_(at::addGlobalCallback(
          at::RecordFunctionCallback(on_start, on_end).scopes({at::RecordScope::FUNCTION}))),
      total_before_(total_calls),
      by_plugin_before_(plugin_calls) {}

SoftmaxCallCounter::~SoftmaxCallCounter() { at::removeCallback(handle_); }

int64_t SoftmaxCallCounter::total() const { return total_calls - total_before_; }

int64_t SoftmaxCallCounter::by_plugin() const { return plugin_calls - by_plugin_before_; }

}  // namespace warpfuse::host
