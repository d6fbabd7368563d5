#pragma once

#include "runtime/load/bundle.h"

namespace warpfuse::host {

class LanguageModel {
 public:
  explicit LanguageModel(LanguageModelSpec spec) : spec_(std::move(spec)) {}
  const LanguageModelSpec& spec() const { return spec_; }

 private:
  LanguageModelSpec spec_;
};

}  // namespace warpfuse::host
