// GPT-2's own vocabulary and cases made with other tokenizers; skipped where the data is not there.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/generation.h"
#include "runtime/text/tokenizer.h"
#include "support/catch.h"

using warpfuse::host::Tokenizer;

namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int64_t>;

fs::path path_from(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? fs::path(value) : fs::path();
}

// GPT-2's; the test case is skipped where the data is not there.
std::optional<Tokenizer> gpt2_tokenizer() {
  const fs::path folder = path_from("WARPFUSE_SHARED_DATA") / "gpt2-bpe";
  if (!fs::exists(folder / "vocab.bpe")) {
    skip_test("no gpt2-bpe in WARPFUSE_SHARED_DATA");
    return std::nullopt;
  }
  return Tokenizer::load(folder);
}

Ids parse_ids(const std::string& text) {
  Ids ids;
  std::istringstream stream(text);
  for (std::string id; std::getline(stream, id, ',');) {
    ids.push_back(std::stoll(id));
  }
  return ids;
}

}  // namespace

TEST_CASE("ggml's cases for GPT-2", "[tokenizer][needs-data]") {
  const auto tokenizer = gpt2_tokenizer();
  if (!tokenizer) {
    return;
  }
  CHECK(tokenizer->size() == 50257);
  CHECK(tokenizer->end_of_text() == 50256);
  std::ifstream cases(path_from("WARPFUSE_SHARED_DATA") / "bpe-vectors" / "ggml_gpt-2.txt");
  int count = 0;
  for (std::string line; std::getline(cases, line);) {
    const size_t arrow = line.rfind(" => ");
    if (arrow == std::string::npos) {
      continue;
    }
    const std::string text = line.substr(0, arrow);
    const Ids ids = tokenizer->encode(text);
    CHECK(ids == parse_ids(line.substr(arrow + 4)));
    CHECK(tokenizer->decode(ids) == text);
    ++count;
  }
  CHECK(count == 100);
}

TEST_CASE("the published prompts' ids are those of their texts", "[tokenizer][needs-data]") {
  const auto tokenizer = gpt2_tokenizer();
  if (!tokenizer) {
    return;
  }
  CHECK(tokenizer->size() == warpfuse::host::bench::kPublishedVocabulary);
  for (const auto& prompt : warpfuse::host::bench::published_prompts()) {
    CHECK(tokenizer->encode(prompt.text) == prompt.ids);
  }
}

TEST_CASE("the same ids as transformers' GPT2TokenizerFast", "[tokenizer][needs-data]") {
  const auto tokenizer = gpt2_tokenizer();
  if (!tokenizer) {
    return;
  }
  std::ifstream stream(path_from("WARPFUSE_GOLDEN_TOKENS"));
  const nlohmann::json cases = nlohmann::json::parse(stream);
  CHECK(cases.size() >= 50);
  for (const auto& golden : cases) {
    const auto text = golden.at("text").get<std::string>();
    CHECK(tokenizer->encode(text) == golden.at("ids").get<Ids>());
  }
}
