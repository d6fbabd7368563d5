#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>

#include "runtime/decode/language_model.h"

namespace warpfuse::host {

// A language model of a TorchScript file that is in no bundle. Its method forward takes token ids
// [B, T] and gives logits [B, T, V], alone, as the first of a tuple, or as "logits" of a
// dictionary.
//
// It has no cache: each step computes all logits of its sequences again, and what the caller takes
// for the cache keeps their token ids. Rows shorter than the longest have others behind their end,
// which a causal model does not see. `context` is the caller's bound; the model's own is not known,
// and its error at a longer sequence is an Error(model).
LanguageModel load_uncached_model(const std::filesystem::path& file, c10::Device device,
                                  int64_t context, bool rewritten);

}  // namespace warpfuse::host
