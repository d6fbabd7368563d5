#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>
#include <warpfuse/rewrite.h>

#include <map>
#include <string>
#include <vector>

namespace warpfuse::host {

// "2 of 2 softmax calls routed to the plugin", and what else there is to say.
std::string summary_of(const RewriteReport& report);

// Rewrites a module that was just loaded, for this device, and says the summary on stderr. Other
// passes come after it. Throws Error(model).
void rewrite_loaded(torch::jit::Module& module, const std::string& name, c10::Device device,
                    std::map<std::string, std::vector<RewriteArgument>> arguments);

}  // namespace warpfuse::host
