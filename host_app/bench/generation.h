#pragma once

#include "bench/benchmark.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/decode/language_model.h"

namespace warpfuse::host::bench {

// A prompt of a published comparison of a fused softmax in distilgpt2 (Shivaritha22 on GitHub,
// which docs/performance.md names), with ids of GPT-2's vocabulary: random weights have no
// tokenizer.
struct PublishedPrompt {
  const char* text;
  std::vector<int64_t> ids;
};

inline constexpr int64_t kPublishedTokens = 100;  // of a prompt and what follows it
inline constexpr int64_t kPublishedVocabulary = 50257;

inline const std::array<PublishedPrompt, 3>& published_prompts() {
  static const std::array<PublishedPrompt, 3> prompts{
      {{"The future of artificial intelligence", {464, 2003, 286, 11666, 4430}},
       {"In a world where technology", {818, 257, 995, 810, 3037}},
       {"The quick brown fox", {464, 2068, 7586, 21831}}}};
  return prompts;
}

// A variant of a model; the variants of a model are measured interleaved.
struct ModelVariant {
  std::string name;
  LanguageModel model;
};

// The fields of a row that name its variant.
Json name_of(const ModelVariant& variant);

struct GenerationCase {
  int64_t batch;
  int64_t prompt;  // tokens
  int64_t tokens;  // to generate, the first from the prompt
  bool graph;
  const PublishedPrompt* published = nullptr;  // null: the run's prompts
};

using TokenLists = std::vector<std::vector<int64_t>>;

// Token ids for the rows of a batch: row i takes list i modulo their number, repeated or cut to the
// prompt's length.
TokenLists batch_of(const TokenLists& lists, int64_t rows, int64_t length);

// State shared by all rows of a run.
struct GenerationBench {
  CudaRuntime* runtime;  // null on the CPU
  double read_bytes_per_us;
  int rounds;  // timed, after one to warm up
  TokenLists prompts;
};

// Read bandwidth: the best of several sums over a large tensor.
double measure_read_bandwidth(c10::Device device, CudaRuntime* runtime);

// One row of JSON for each variant; rounds interleave the variants, so that a drift of
// the clocks meets all alike. Ends early, with the rounds that there are, when the user interrupts.
// `first_ids`, one list per variant, are the tokens generated in row 0.
std::vector<Json> measure_generation(const GenerationBench& bench,
                                     const std::vector<ModelVariant>& variants,
                                     const GenerationCase& c, TokenLists& first_ids);

// The time from prompts to their first tokens. Ends early in the same way.
std::vector<Json> measure_prefill(const GenerationBench& bench,
                                  const std::vector<ModelVariant>& variants, int64_t batch,
                                  int64_t prompt);

}  // namespace warpfuse::host::bench
