#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <warpfuse/rewrite.h>

#include <string>
#include <vector>

#include "chain.h"

namespace warpfuse::rewriting {

// The report's entry for a node that was there before, and for a chain.
RewrittenSoftmax told(const std::string& method, const torch::jit::Node* before, const char* after,
                      const std::vector<std::string>& form, const std::string& note);
RewrittenSoftmax told(const std::string& method, const Chain& chain);

}  // namespace warpfuse::rewriting
