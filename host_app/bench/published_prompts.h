#pragma once

#include <array>
#include <cstdint>
#include <vector>

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

}  // namespace warpfuse::host::bench
