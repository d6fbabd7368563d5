// Which generations `bench generate` runs, and on which prompts.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/generation_plan.h"
#include "failure_of.h"
#include "support/catch.h"
#include "temporary_folder.h"

using namespace warpfuse::host::bench;
namespace fs = std::filesystem;

namespace {

using Lists = std::vector<std::vector<int64_t>>;
using Texts = std::vector<std::string>;

GenerationPlan plan_of(std::vector<int64_t> batches, std::vector<int64_t> prompts,
                       std::vector<bool> graphs, int64_t tokens) {
  return {.groups = {},
          .batches = std::move(batches),
          .prompts = std::move(prompts),
          .published = false,
          .graphs = std::move(graphs),
          .prefills = {},
          .tokens = tokens};
}

warpfuse::host::LanguageModelSpec model_of(int64_t context, int64_t vocabulary = 1000) {
  return {.context = context,
          .layers = 1,
          .heads = 1,
          .head_dim = 8,
          .vocab_size = vocabulary,
          .end_tokens = {}};
}

// "<batch>x<prompt>", with " graph" after it.
Texts texts_of(const GenerationPlan& plan, int64_t context, bool cuda) {
  Texts texts;
  for (const GenerationCase& c : plan.cases(model_of(context), cuda)) {
    CHECK(c.tokens == plan.tokens);
    texts.push_back(fmt::format("{}x{}{}", c.batch, c.prompt, c.graph ? " graph" : ""));
  }
  return texts;
}

GenerationRequest request(const fs::path& folder) {
  return {.folders = {folder.string()},
          .dtypes = std::nullopt,
          .batches = "1",
          .prompts = "32",
          .graphs = "on,off",
          .prefills = std::nullopt,
          .tokens = 8};
}

void put_bundle(const TemporaryFolder& folder, const std::string& name, const std::string& variant,
                const std::string& dtype, int64_t vocabulary) {
  fs::create_directories(folder.path() / name);
  const nlohmann::json description = {{"format", 2},
                                      {"kind", "causal_lm"},
                                      {"model", "toy"},
                                      {"variant", variant},
                                      {"layers", 2},
                                      {"context", 64},
                                      {"heads", 4},
                                      {"head_dim", 8},
                                      {"dtype", dtype},
                                      {"vocab_size", vocabulary},
                                      {"schema_version", 1},
                                      {"operators", nlohmann::json::array()},
                                      {"sha256", {{"model.pt", "00ff"}}}};
  folder.write(name + "/bundle.json", description.dump());
}

// "<variant> <dtype>" of a group's bundles.
Texts names_of(const BundleGroup& group) {
  Texts names;
  for (const warpfuse::host::Bundle& bundle : group) {
    names.push_back(bundle.variant + " " + c10::toString(bundle.dtype));
  }
  return names;
}

}  // namespace

TEST_CASE("a batch takes the lists in turn, over again or cut to the prompt's length",
          "[bench][generation]") {
  const Lists prompts{{1, 2, 3}, {4}};
  CHECK(batch_of(prompts, 3, 5) == Lists{{1, 2, 3, 1, 2}, {4, 4, 4, 4, 4}, {1, 2, 3, 1, 2}});
  CHECK(batch_of(prompts, 1, 2) == Lists{{1, 2}});
  CHECK(batch_of(prompts, 2, 3) == Lists{{1, 2, 3}, {4, 4, 4}});
}

TEST_CASE("random prompts are the same each time and have ids of the vocabulary",
          "[bench][generation]") {
  for (const int64_t vocabulary : {1, 7, 50257}) {
    const Lists lists = random_prompt_ids(vocabulary);
    CHECK(random_prompt_ids(vocabulary) == lists);
    for (const std::vector<int64_t>& list : lists) {
      CHECK(std::ranges::min(list) >= 0);
      CHECK(std::ranges::max(list) < vocabulary);
    }
  }
  const Lists lists = random_prompt_ids(7);
  CHECK(std::ranges::max(lists[0]) == 6);
  CHECK(lists[0] != lists[1]);
}

TEST_CASE("prompts of a file", "[bench][generation]") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "ids.json";
  const auto read = [&](const std::string& text) {
    folder.write("ids.json", text);
    return read_prompt_ids(path, 4);
  };
  CHECK(read("[[1, 2], [3]]") == Lists{{1, 2}, {3}});
  for (const char* bad : {"", "1", "[1, 2]", "{}", "[]", "[[1], []]", "[[\"1\"]]", "[[1]",
                          "[[1.5]]", "[[-1]]", "[[4]]"}) {
    INFO(bad);
    CHECK(failure_of([&] { read(bad); }) ==
          "2: --prompt-ids " + path + ": expected a JSON list of lists of token ids below 4");
  }
}

TEST_CASE("cases are those that fit the context", "[bench][generation]") {
  // The last token is not fed back: prompt + tokens - 1 positions.
  CHECK(texts_of(plan_of({1}, {56, 57, 58, 200}, {true}, 8), 64, true) ==
        Texts{"1x56 graph", "1x57 graph"});
  CHECK(texts_of(plan_of({1}, {58}, {true}, 8), 64, true).empty());
}

TEST_CASE("only the smallest batch is measured without graphs too", "[bench][generation]") {
  CHECK(texts_of(plan_of({4, 1}, {8, 16}, {true, false}, 8), 64, true) ==
        Texts{"4x8 graph", "4x16 graph", "1x8 graph", "1x8", "1x16 graph", "1x16"});
  CHECK(texts_of(plan_of({4, 1}, {8}, {false}, 8), 64, true) == Texts{"1x8"});
}

TEST_CASE("there are no graphs on the CPU", "[bench][generation]") {
  CHECK(texts_of(plan_of({4, 1}, {8}, {true, false}, 8), 64, false) == Texts{"4x8", "1x8"});
  CHECK(texts_of(plan_of({1}, {8}, {true}, 8), 64, false).empty());
}

TEST_CASE("no context has room for the largest number of tokens", "[bench][generation]") {
  CHECK(texts_of(plan_of({1}, {8}, {false}, INT64_MAX), 64, false).empty());
}

TEST_CASE("published prompts are generated one at a time, to the length that was published",
          "[bench][generation]") {
  GenerationPlan plan = plan_of({4}, {}, {true, false}, 8);
  plan.published = true;
  const auto cases = plan.cases(model_of(1024, 50257), true);
  CHECK(cases.size() == 6);
  for (size_t i = 0; i < cases.size(); ++i) {
    const PublishedPrompt& prompt = published_prompts().at(i / 2);
    CHECK(cases[i].published == &prompt);
    CHECK(cases[i].batch == 1);
    CHECK(cases[i].prompt == static_cast<int64_t>(prompt.ids.size()));
    CHECK(cases[i].prompt + cases[i].tokens == 100);
    CHECK(cases[i].graph == (i % 2 == 0));
  }
  CHECK(plan.cases(model_of(1024, 50257), false).size() == 3);
  CHECK(plan.cases(model_of(1024, 1000), true).empty());  // their ids are GPT-2's
  CHECK(plan.cases(model_of(99, 50257), true).empty());
}

TEST_CASE("published prompts are a word among the lengths", "[bench][generation]") {
  const TemporaryFolder folder;
  put_bundle(folder, "baseline-float32", "baseline", "float32", 300);
  const auto plan = [&](const char* prompts) {
    GenerationRequest asked = request(folder.path());
    asked.prompts = prompts;
    return plan_generation(asked);
  };
  CHECK(plan("published,16,published").prompts == std::vector<int64_t>{16});
  CHECK(plan("16,published").published);
  CHECK_FALSE(plan("16").published);
  CHECK(plan("published").prompts.empty());
  CHECK(failure_of([&] { plan("16,Published"); }) ==
        "2: --prompt: expected integers of 1..1000000, got 'Published'");
  CHECK(failure_of([&] { plan(""); }).starts_with("2: --prompt: expected integers"));
}

TEST_CASE("bundles are grouped by dtype, the baseline first", "[bench][generation]") {
  const TemporaryFolder folder;
  put_bundle(folder, "fused-float32", "fused", "float32", 300);
  put_bundle(folder, "baseline-float32", "baseline", "float32", 300);
  put_bundle(folder, "another-float32", "another", "float32", 300);
  put_bundle(folder, "fused-float16", "fused", "float16", 200);
  fs::create_directories(folder.path() / "no-bundle");
  fs::create_directory_symlink("loop", folder.path() / "loop");
  GenerationRequest asked = request(folder.path());
  const GenerationPlan plan = plan_generation(asked);
  REQUIRE(plan.groups.size() == 2);
  CHECK(names_of(plan.groups[0]) == Texts{"fused Half"});
  CHECK(names_of(plan.groups[1]) == Texts{"baseline Float", "another Float", "fused Float"});
  CHECK(plan.bundles().size() == 4);
  CHECK(plan.vocabulary() == 200);
  asked.folders.push_back((folder.path() / ".").string());
  CHECK(plan_generation(asked).groups.size() == 2);
  asked.dtypes = "float32";
  CHECK(plan_generation(asked).groups.size() == 1);
  CHECK(plan_generation(asked).vocabulary() == 300);
}

TEST_CASE("lists of numbers are read", "[bench][generation]") {
  const TemporaryFolder folder;
  put_bundle(folder, "fused-float32", "fused", "float32", 300);
  GenerationRequest asked = request(folder.path());
  asked.batches = "1,32";
  asked.prompts = "7";
  asked.graphs = "off";
  asked.prefills = "8x1024,1x2,8x1024";
  const GenerationPlan plan = plan_generation(asked);
  CHECK(plan.batches == std::vector<int64_t>{1, 32});
  CHECK(plan.prompts == std::vector<int64_t>{7});
  CHECK(plan.graphs == std::vector<bool>{false});
  asked.graphs = "both";
  CHECK(plan_generation(asked).graphs == std::vector<bool>{true, false});
  asked.graphs = "off,both";
  CHECK(plan_generation(asked).graphs == std::vector<bool>{false, true});
  REQUIRE(plan.prefills.size() == 2);
  CHECK(plan.prefills[0].first == 8);
  CHECK(plan.prefills[0].second == 1024);
  CHECK(plan.prefills[1].first == 1);
  CHECK(plan.prefills[1].second == 2);
  CHECK(plan.tokens == 8);
}

TEST_CASE("what cannot be planned is named", "[bench][generation]") {
  const TemporaryFolder folder;
  const auto refusal = [&](auto GenerationRequest::* field, const char* text) {
    GenerationRequest asked = request(folder.path());
    asked.*field = text;
    return failure_of([&] { plan_generation(asked); });
  };
  for (const char* bad : {"", "0", "-1", "x", "1,,2", "2x", "4097", "99999999999999999999"}) {
    INFO(bad);
    CHECK(refusal(&GenerationRequest::batches, bad)
              .starts_with("2: --batch: expected integers of 1..4096, got '"));
  }
  CHECK(refusal(&GenerationRequest::prompts, "8,1.5") ==
        "2: --prompt: expected integers of 1..1000000, got '1.5'");
  CHECK(refusal(&GenerationRequest::graphs, "on,maybe") ==
        "2: --graph: expected on, off or both, got 'maybe'");
  for (const char* bad : {"", "8", "8x", "x8", "8by2", "8x2x2", "0x2", "8x-2"}) {
    INFO(bad);
    CHECK(refusal(&GenerationRequest::prefills, bad) ==
          std::string("2: --prefill: expected sizes such as 8x1024, got '") + bad + "'");
  }
  const std::string none =
      "3: " + folder.path().string() + ": has no folders with bundles of a language model";
  CHECK(failure_of([&] { plan_generation(request(folder.path())); }) == none);
  put_bundle(folder, "fused-float32", "fused", "float32", 300);
  CHECK(refusal(&GenerationRequest::dtypes, "float16,bfloat16") == none + " in float16, bfloat16");
  GenerationRequest nowhere = request(folder.path());
  nowhere.folders.clear();
  CHECK(failure_of([&] { plan_generation(nowhere); }) == "2: -m, --model is missing (see --help)");
}
