#pragma once

#include <cstdint>
#include <span>

#include "runtime/decode/row_draws.h"

namespace warpfuse::host {

// A sequence to continue. Its name selects its random stream, so that samples depend on neither row
// nor batch.
struct Sequence {
  int64_t name;  // at least 0, unique among the running ones
  std::span<const int64_t> ids;
  int64_t tokens;              // to sample at most; the last one needs no room in the context
  DrawRules draw = {};         // where DecodeOptions::mixed
  bool prompt_scored = false;  // the log-probabilities of its ids, where it enters by pieces
};

}  // namespace warpfuse::host
