#pragma once

#include <c10/core/Device.h>

#include <utility>

#include "runtime/load/bundle.h"

namespace warpfuse::host {

class LanguageModel {
 public:
  explicit LanguageModel(LanguageModelSpec spec) : spec_(std::move(spec)) {}
  const LanguageModelSpec& spec() const { return spec_; }
  static c10::Device device() { return c10::kCPU; }

 private:
  LanguageModelSpec spec_;
};

}  // namespace warpfuse::host
