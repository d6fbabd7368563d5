#pragma once

#include "cached_attention_softmax/cached_attention_softmax.h"

namespace warpfuse {

/// Whether launch_prompt() takes the tokens, and is the fastest to do so.
bool takes_prompt(const CachedAttentionArguments& a);

/// Attention of many tokens by tiles of queries, on tensor cores.
cudaError_t launch_prompt(const CachedAttentionArguments& a, cudaStream_t stream);

}  // namespace warpfuse
