#pragma once

#include <torch/csrc/jit/api/module.h>

namespace warpfuse::host {

// Changes the methods of a language model so that what they may write in place is a copy of their
// arguments, but for the cache: the caller's token ids and positions stay as they are, at no cost
// for a model that writes to none of them.
void keep_arguments(torch::jit::Module& module);

}  // namespace warpfuse::host
