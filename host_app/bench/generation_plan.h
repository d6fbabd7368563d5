#pragma once

#include "bench/generation.h"
#include "runtime/text/tokenizer.h"

namespace warpfuse::host::bench {

// The options of `bench generate` as text.
struct GenerationRequest {
  std::vector<std::string> folders;
  std::optional<std::string> dtypes;
  std::string batches, prompts, graphs;
  std::optional<std::string> prefills;
  int64_t tokens;
};

// The bundles of one model in one dtype, the baseline first.
using BundleGroup = std::vector<Bundle>;

struct GenerationPlan {
  std::vector<BundleGroup> groups;
  std::vector<int64_t> batches, prompts;
  bool published;  // also the published prompts
  std::vector<bool> graphs;
  std::vector<std::pair<int64_t, int64_t>> prefills;  // batches and lengths
  int64_t tokens;

  // Cases that fit the model's context. On a GPU without graphs only the smallest batch. Published
  // prompts run one at a time to their published length, if the vocabulary is GPT-2's.
  std::vector<GenerationCase> cases(const LanguageModelSpec& model, bool cuda) const;
  std::vector<std::pair<int64_t, int64_t>> prefills_within(int64_t context) const;
  // Whether any model has a case or a prefill.
  bool has_work(bool cuda) const;
  std::vector<Bundle> bundles() const;
  // Size of the smallest vocabulary: its ids are valid for every model.
  int64_t vocabulary() const;
};

// Reads the bundles' descriptions. Throws Error(usage) that names the option, Error(model) for a
// folder without bundles.
GenerationPlan plan_generation(const GenerationRequest& request);

// The same ids on every machine.
TokenLists random_prompt_ids(int64_t vocabulary);
// The first 1024 tokens from each of eight places, evenly spaced in the text of a file. Throws
// Error(usage) for a file that cannot be read, or too short to have eight.
TokenLists text_prompt_ids(const std::string& path, const Tokenizer& tokenizer);
// A JSON list of lists of ids below `vocabulary`. Throws Error(usage) for another file.
TokenLists read_prompt_ids(const std::string& path, int64_t vocabulary);

}  // namespace warpfuse::host::bench
