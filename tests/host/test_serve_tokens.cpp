// What the server and `generate` make of a vocabulary with a gap: ids that no token has.

#include <ATen/ops/zeros.h>

#include "commands/generate_output.h"
#include "failure_of.h"
#include "fake_language_model.h"
#include "plugin_under_test.h"
#include "serve/access.h"
#include "serve/answers.h"
#include "serve/scheduler.h"
#include "support/catch.h"
#include "temporary_folder.h"
#include "toy_vocabulary.h"

using namespace warpfuse::host;

namespace {

constexpr int64_t kSizeWithGap = 301;
constexpr int64_t kGap = 257;  // 256 is <|endoftext|>

Tokenizer tokenizer_with_gap() {
  const TemporaryFolder folder;
  folder.write("vocab.json", toy_vocabulary());
  folder.write("merges.txt", "#version: 0.2\n");
  folder.write("added_tokens.json", R"({"<x>": 300})");
  return Tokenizer::load(folder.path());
}

LanguageModelSpec spec() {
  return {.context = 64,
          .layers = 1,
          .heads = 1,
          .head_dim = 2,
          .vocab_size = kSizeWithGap,
          .end_tokens = {}};
}

}  // namespace

TEST_CASE("a prompt may not have an id that no token has", "[serve]") {
  const Tokenizer tokenizer = tokenizer_with_gap();
  const auto parse = [&](const std::string& prompt) -> std::string {
    try {
      parse_completion("{\"prompt\": " + prompt + "}", "m", spec(), tokenizer);
      return "nothing";
    } catch (const ApiError& error) {
      return std::to_string(error.status) + ": " + error.what();
    }
  };
  CHECK(parse("[256, 300]") == "nothing");
  CHECK(parse("[1, 257]") == "400: 'prompt': expected ids of tokens, within 0..300, got 257");
  CHECK(parse("[301]") == "400: 'prompt': expected ids of tokens, within 0..300, got 301");
}

TEST_CASE("a model that gives an id that no token has fails the job", "[serve]") {
  load_plugin_under_test();
  const Tokenizer tokenizer = tokenizer_with_gap();
  const LanguageModel model = counting_model(kSizeWithGap, 64);
  DecodeLoop loop(model, {.rows = 1, .sampling = {}, .top_logprobs = 2, .mixed = true}, nullptr);
  Scheduler scheduler(model, tokenizer, {}, loop, 1, 1);
  CompletionRequest request;
  request.prompts = {{255}};
  request.sampling = {};
  const auto job = scheduler.submit(std::move(request));
  scheduler.drain();
  scheduler.run();
  CHECK(job->failure() == "the model gave an unknown token");
}

TEST_CASE("an id that no token has is left out of the most probable tokens", "[serve]") {
  const Tokenizer tokenizer = tokenizer_with_gap();
  CompletionRequest request;
  request.prompts = {{65}};
  request.logprobs = 2;
  const Job job(std::move(request));
  Answer answer(job, tokenizer, "m");
  answer.add({.token = Choice{.id = 66, .logprob = -1, .top_logprobs = {{kGap, -0.5F}, {66, -1}}},
              .finish_reason = FinishReason::length});
  CHECK(answer.whole()["choices"][0]["logprobs"]["top_logprobs"].dump() == R"([{"B":-1.0}])");
}

TEST_CASE("generate names an id that no token has", "[generate]") {
  const Tokenizer tokenizer = tokenizer_with_gap();
  const std::vector<Prompt> prompts{{.text = "a", .source = {}, .id = {}}};
  const std::vector<std::vector<int64_t>> ids{{97}};
  GenerationOutput output(tokenizer, prompts, ids, {.stop_texts = {}, .json = true}, false);
  const Choice choice{.id = kGap, .logprob = 0, .top_logprobs = {}};
  CHECK(failure_of([&] { output.on_token(0, choice, /*is_end=*/false); }) ==
        "3: the model gave token 257, which its tokenizer of 301 does not have");
  CHECK(failure_of([&] { output.on_token(0, choice, /*is_end=*/true); }) == "nothing");
}

TEST_CASE("what begins as a loopback address and is a name is none", "[serve]") {
  const auto is_loopback = [](const char* host) {
    return Access{.host = host, .api_key = {}}.is_loopback();
  };
  for (const char* own : {"localhost", "127.0.0.1", "127.1.2.3", "127.1", "::1"}) {
    CHECK(is_loopback(own));
  }
  for (const char* other :
       {"127.0.0.1.example.org", "127.example", "0.0.0.0", "::", "example", ""}) {
    CHECK_FALSE(is_loopback(other));
  }
}

TEST_CASE("the server's address as clients write it", "[serve]") {
  const auto url = [](const char* host) { return Access{.host = host, .api_key = {}}.url(8080); };
  CHECK(url("127.0.0.1") == "http://127.0.0.1:8080");
  CHECK(url("::1") == "http://[::1]:8080");
}
