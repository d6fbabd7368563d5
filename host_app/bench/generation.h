#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/published_prompts.h"
#include "runtime/cuda_runtime.h"
#include "runtime/language_model.h"

namespace warpfuse::host::bench {

// A variant of a model, one of several that are measured in turn.
struct Contestant {
  std::string variant;
  c10::ScalarType dtype;
  LanguageModel model;
  int64_t weight_bytes;
};

// What tells its rows from the others'.
Json name_of(const Contestant& contestant);

struct GenerationCase {
  int64_t batch;
  int64_t prompt;  // tokens
  int64_t tokens;  // to generate, the first from the prompt
  bool graph;
  const PublishedPrompt* published = nullptr;  // null: the run's prompts
};

// Token ids for the rows of a batch: row i takes the i-th list, and lists over again, each as often
// as the prompt is long.
class PromptIds {
 public:
  explicit PromptIds(std::vector<std::vector<int64_t>> lists) : lists_(std::move(lists)) {}
  std::vector<std::vector<int64_t>> batch(int64_t rows, int64_t length) const;
  const std::vector<std::vector<int64_t>>& lists() const { return lists_; }

 private:
  std::vector<std::vector<int64_t>> lists_;
};

// What all rows of a run share.
struct GenerationBench {
  CudaRuntime* runtime;  // null on the CPU
  double read_bytes_per_us;
  int rounds;  // timed ones, after one that warms up
  PromptIds prompts;
};

// The rate at which the processor reads memory, by a sum over a large tensor: the best of several.
double measure_read_bandwidth(c10::Device device, CudaRuntime* runtime);

// One row of JSON for each contestant; rounds go through all of them in turn, so that a drift of
// the clocks meets all alike. Ends early, with the rounds that there are, when the user interrupts.
// `first_ids`, one list each, are what they said in row 0.
std::vector<Json> measure_generation(const GenerationBench& bench,
                                     const std::vector<Contestant>& contestants,
                                     const GenerationCase& c,
                                     std::vector<std::vector<int64_t>>& first_ids);

// The time from prompts to their first tokens.
std::vector<Json> measure_prefill(const GenerationBench& bench,
                                  const std::vector<Contestant>& contestants, int64_t batch,
                                  int64_t prompt);

}  // namespace warpfuse::host::bench
