#include "bench/generation_plan.h"

#include <fmt/ranges.h>

#include <limits>
#include <random>
#include <set>

#include "bench/plan.h"
#include "runtime/files.h"
#include "runtime/parse.h"

namespace warpfuse::host::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBatch = 4096;
constexpr int64_t kMaxTokens = 1'000'000;
constexpr size_t kPromptLists = 8;
constexpr size_t kPromptLength = 1024;                 // tokens
constexpr size_t kMaxPromptBytes = 8 * kPromptLength;  // a token of a text has four on average
constexpr const char* kPublished = "published";

std::vector<bool> switches(const std::string& list) {
  std::vector<bool> graphs;
  for (const std::string& item : split_list(list)) {
    if (item != "on" && item != "off" && item != "both") {
      fail(ExitCode::usage, "--graph: expected on, off or both, got '{}'", item);
    }
    for (const bool graph : {true, false}) {
      if (item != (graph ? "off" : "on")) {
        add_once(graphs, graph);
      }
    }
  }
  return graphs;
}

std::vector<std::pair<int64_t, int64_t>> sizes(const std::string& list) {
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const std::string& item : split_list(list)) {
    const std::optional<Shape> shape = parse_shape(item);
    if (!shape || item.find('@') != std::string::npos || shape->sizes.size() != 2 ||
        shape->sizes[0] > kMaxBatch || shape->sizes[1] > kMaxTokens) {
      fail(ExitCode::usage, "--prefill: expected sizes such as 8x1024, got '{}'", item);
    }
    add_once(result, {shape->sizes[0], shape->sizes[1]});
  }
  return result;
}

std::vector<BundleGroup> groups_of(const std::string& folder,
                                   const std::vector<std::string>& dtypes) {
  std::map<std::string, BundleGroup> by_dtype;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (std::error_code ignored; !fs::exists(entry.path() / "bundle.json", ignored)) {
      continue;
    }
    const Bundle bundle = read_bundle(entry.path());
    const std::string dtype = name_in(kDtypeNames, Precision{bundle.dtype});
    if (bundle.language_model && (dtypes.empty() || std::ranges::count(dtypes, dtype) > 0)) {
      by_dtype[dtype].push_back(bundle);
    }
  }
  if (by_dtype.empty()) {
    fail(ExitCode::model, "{}: has no folders with bundles of a language model{}", folder,
         dtypes.empty() ? "" : fmt::format(" in {}", fmt::join(dtypes, ", ")));
  }
  std::vector<BundleGroup> groups;
  for (auto& [dtype, group] : by_dtype) {
    std::ranges::sort(group, {}, [](const Bundle& bundle) {
      return std::pair(bundle.variant != "baseline", bundle.variant);
    });
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace

GenerationPlan plan_generation(const GenerationRequest& request) {
  std::vector<std::string> lengths = split_list(request.prompts);
  const bool published = std::erase(lengths, kPublished) > 0;
  GenerationPlan plan{.groups = {},
                      .batches = integer_list("--batch", split_list(request.batches), kMaxBatch),
                      .prompts = integer_list("--prompt", lengths, kMaxTokens),
                      .published = published,
                      .graphs = switches(request.graphs),
                      .prefills = {},
                      .tokens = request.tokens};
  if (request.prefills) {
    plan.prefills = sizes(*request.prefills);
  }
  const std::vector<std::string> dtypes =
      request.dtypes ? split_list(*request.dtypes) : std::vector<std::string>();
  for (const std::string& dtype : dtypes) {
    if (!value_in(kDtypeNames, dtype)) {
      fail(ExitCode::usage, "--dtype: expected float32, float16 or bfloat16, got '{}'", dtype);
    }
  }
  std::set<fs::path> known;  // a row that is there twice would make the results unusable
  for (const std::string& folder : request.folders) {
    if (std::error_code error; known.insert(fs::weakly_canonical(folder, error)).second) {
      std::ranges::move(groups_of(folder, dtypes), std::back_inserter(plan.groups));
    }
  }
  if (plan.groups.empty()) {
    fail(ExitCode::usage, "-m, --model is missing (see --help)");
  }
  return plan;
}

std::vector<GenerationCase> GenerationPlan::cases(const LanguageModelSpec& model, bool cuda) const {
  std::vector<GenerationCase> result;
  for (const int64_t batch : batches) {
    for (const int64_t prompt : prompts) {
      for (const bool graph : graphs) {
        const bool wanted = cuda ? graph || batch == std::ranges::min(batches) : !graph;
        if (wanted && tokens - 1 <= model.context - prompt) {
          result.push_back({.batch = batch, .prompt = prompt, .tokens = tokens, .graph = graph});
        }
      }
    }
  }
  if (published && model.vocab_size == kPublishedVocabulary && model.context >= kPublishedTokens) {
    for (const PublishedPrompt& prompt : published_prompts()) {
      const auto length = static_cast<int64_t>(prompt.ids.size());
      for (const bool graph : graphs) {
        if (cuda || !graph) {
          result.push_back({.batch = 1,
                            .prompt = length,
                            .tokens = kPublishedTokens - length,
                            .graph = graph,
                            .published = &prompt});
        }
      }
    }
  }
  return result;
}

std::vector<std::pair<int64_t, int64_t>> GenerationPlan::prefills_within(int64_t context) const {
  std::vector<std::pair<int64_t, int64_t>> result = prefills;
  std::erase_if(result, [&](const auto& size) { return size.second > context; });
  return result;
}

bool GenerationPlan::has_work(bool cuda) const {
  return std::ranges::any_of(groups, [&](const BundleGroup& group) {
    const LanguageModelSpec model = language_model_of(group.front());
    return !cases(model, cuda).empty() || !prefills_within(model.context).empty();
  });
}

std::vector<Bundle> GenerationPlan::bundles() const {
  std::vector<Bundle> all;
  for (const BundleGroup& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

int64_t GenerationPlan::vocabulary() const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const BundleGroup& group : groups) {
    least = std::min(least, language_model_of(group.front()).vocab_size);
  }
  return least;
}

TokenLists random_prompt_ids(int64_t vocabulary) {
  TokenLists lists(kPromptLists, std::vector<int64_t>(kPromptLength));
  // NOLINTNEXTLINE(bugprone-random-generator-seed): the same ids on every machine.
  std::mt19937_64 generator(0);
  for (std::vector<int64_t>& list : lists) {
    std::ranges::generate(list, [&] {
      return static_cast<int64_t>(generator() % static_cast<uint64_t>(vocabulary));
    });
  }
  return lists;
}

TokenLists text_prompt_ids(const std::string& path, const Tokenizer& tokenizer) {
  const std::string text = read_file(path, ExitCode::usage);
  const auto continues_character = [&](size_t i) {
    return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80;
  };
  if (text.size() < kPromptLists) {
    fail(ExitCode::usage, "--text {}: expected at least {} bytes", path, kPromptLists);
  }
  TokenLists lists;
  for (size_t i = 0; i < kPromptLists; ++i) {
    size_t begin = i * text.size() / kPromptLists;
    while (continues_character(begin)) {
      ++begin;
    }
    lists.push_back(tokenizer.encode(text.substr(std::min(begin, text.size()), kMaxPromptBytes)));
    lists.back().resize(std::min<size_t>(lists.back().size(), kPromptLength));
    if (lists.back().empty()) {
      fail(ExitCode::usage, "--text {}: has no token at byte {}", path, begin);
    }
  }
  return lists;
}

TokenLists read_prompt_ids(const std::string& path, int64_t vocabulary) {
  const Json document = parse_json<Json>(read_file(path, ExitCode::usage), ExitCode::usage, path);
  const auto is_id = [&](const Json& id) { return is_integer_within(id, 0, vocabulary - 1); };
  const auto is_list = [&](const Json& list) {
    return list.is_array() && !list.empty() && std::ranges::all_of(list, is_id);
  };
  if (!document.is_array() || document.empty() || !std::ranges::all_of(document, is_list)) {
    fail(ExitCode::usage, "--prompt-ids {}: expected a JSON list of lists of token ids below {}",
         path, vocabulary);
  }
  return document;
}

}  // namespace warpfuse::host::bench
