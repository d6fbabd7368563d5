#include "runtime/decode/graph_cache.h"

#include "runtime/errors.h"

namespace warpfuse::host {
namespace {

// Enough calls for lazy library initialisation, which cannot be captured.
constexpr int kWarmUps = 3;

}  // namespace

const GraphCache::Captured* GraphCache::find(const Work& work) {
  if (runtime_ == nullptr || !failure_.empty()) {
    return nullptr;
  }
  const auto found = graphs_.find(work.key);
  if (found != graphs_.end()) {
    return &found->second;
  }
  Captured made;
  try {
    uncounted_softmax_calls([&] {
      runtime_->warm_up([&] {
        for (int i = 0; i < kWarmUps; ++i) {
          work.warm_up();
        }
      });
    });
    made.softmax_calls =
        uncounted_softmax_calls([&] { made.graph = runtime_->capture(work.run, first_); });
  } catch (...) {
    failure_ = describe(std::current_exception(), ExitCode::device).message;
    return nullptr;
  }
  first_ = first_ == nullptr ? made.graph.get() : first_;
  return &graphs_.emplace(work.key, std::move(made)).first->second;
}

int64_t GraphCache::run(const Work& work) {
  const Captured* captured = find(work);
  if (captured == nullptr) {
    work.run();
    return 0;
  }
  captured->graph->replay();
  add_softmax_calls(captured->softmax_calls);
  return captured->graph->kernels();
}

}  // namespace warpfuse::host
