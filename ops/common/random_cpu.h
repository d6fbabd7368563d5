#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "common/philox.h"

namespace warpfuse {

/// A fresh pair from the default generator of the CPU. The offset is below 2^63, as those of CUDA's
/// generators are.
inline RngSource draw_rng_on_cpu() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  auto* engine = at::check_generator<at::CPUGeneratorImpl>(generator);
  RngSource source;
  source.seed = engine->random64();
  source.offset = engine->random64() >> 1;
  return source;
}

}  // namespace warpfuse
