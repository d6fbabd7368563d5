

#include "bench/generation_plan.h"
#include "bench/results.h"
#include "bench/table.h"
#include "commands/commands.h"
#include "runtime/score/verification.h"
#include "runtime/text/prompts.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

using namespace bench;

constexpr const char* kGenerationFormat = "warpfuse-generate-1";
constexpr int64_t kComparedSteps = 16;

constexpr Option kBenchGenerateOptions[] = {
    {"m,model", "DIR", "folder of bundles; may be repeated", nullptr, true},
    {"batch", "LIST", "sequences at a time", "1"},
    {"prompt", "LIST", "tokens of a prompt; published: also three published prompts", "32"},
    {"n,tokens", "N", "tokens to generate", "224"},
    {"graph", "LIST", "CUDA graphs: on, off or both", "both"},
    {"prefill", "LIST", "batches of prompts to time to their first tokens, such as 8x1024"},
    {"dtype", "LIST", "default: all of them"},
    {"rounds", "N", "timed runs of each row", "5"},
    {"prompts", "F",
     "take prompts from this file, one per line, as text or as JSON (default: random tokens)"},
    {"text", "F", "or from eight places of this text, such as WikiText-2's test.txt"},
    {"tokenizer", "DIR", "tokenizer of the prompts (default: the first bundle's)"},
    {"prompt-ids", "F", "or from this JSON list of lists of token ids"},
    {"rewrite", kSwitch,
     "one more variant, rewritten: the baseline, its softmax calls routed to the plugin"},
    {"json", "F", "write the results as JSON, again after each row"},
};

GenerationRequest generation_request(const Arguments& arguments) {
  return {.folders = arguments.texts("model"),
          .dtypes = arguments.optional_text("dtype"),
          .batches = arguments.text("batch"),
          .prompts = arguments.text("prompt"),
          .graphs = arguments.text("graph"),
          .prefills = arguments.optional_text("prefill"),
          .tokens = arguments.integer("tokens", 2)};
}

// Prompts, and their source for the JSON.
std::pair<TokenLists, std::string> prompts_of(const Arguments& arguments,
                                              const GenerationPlan& plan) {
  if (arguments.count({"prompts", "text", "prompt-ids"}) > 1) {
    fail(ExitCode::usage, "expected one of --prompts F, --text F and --prompt-ids F (see --help)");
  }
  if (arguments.has("prompt-ids")) {
    const std::string path = arguments.text("prompt-ids");
    return {read_prompt_ids(path, plan.vocabulary()), path};
  }
  if (!arguments.has("prompts") && !arguments.has("text")) {
    return {random_prompt_ids(plan.vocabulary()), "random"};
  }
  const Tokenizer tokenizer = Tokenizer::load(
      arguments.optional_text("tokenizer").value_or(plan.groups.front().front().folder));
  if (arguments.has("text")) {
    const std::string path = arguments.text("text");
    return {text_prompt_ids(path, tokenizer), path};
  }
  const std::string path = arguments.text("prompts");
  return {encode(tokenizer, read_prompts(path)), path};
}

// Index of the first difference; null if one list is a prefix of the other.
Json first_difference(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const auto [one, other] = std::ranges::mismatch(a, b);
  return one == a.end() || other == b.end() ? Json() : Json(one - a.begin());
}

// One model in one dtype.
class GroupRun {
 public:
  GroupRun(const BundleGroup& group, bool with_rewritten, c10::Device device,
           const GenerationBench& bench, ResultFile& document)
      : name_(group.front().model), bench_(bench), document_(document) {
    for (const Bundle& bundle : group) {
      variants_.push_back({bundle.variant, load_language_model(bundle, device)});
    }
    if (with_rewritten) {
      variants_.push_back(
          {"rewritten", load_language_model(group.front(), device, /*rewritten=*/true)});
    }
    std::ranges::for_each(bench.prompts, [&](const std::vector<int64_t>& ids) {
      variants_.front().model.require_known(ids);
    });
  }

  void decode(const GenerationCase& c) {
    TokenLists ids;
    for (Json& row : measure_generation(bench_, variants_, c, ids)) {
      Json named = with_model(row);
      print_generation(named);
      document_.add("rows", std::move(named));
    }
    if (first_ids_.empty()) {
      first_ids_ = std::move(ids);
      first_prompt_ = c.prompt;
    }
  }

  void prefill(int64_t batch, int64_t prompt) {
    for (Json& row : measure_prefill(bench_, variants_, batch, prompt)) {
      Json named = with_model(row);
      print_prefill(named);
      document_.add("prefill", std::move(named));
    }
  }

  // Compares the other variants with the baseline: logits on equal tokens, and the tokens generated
  // in the first measured row. Returns false if logits are too far apart.
  bool compare() {
    if (variants_.front().name != "baseline" || first_ids_.empty()) {
      return true;
    }
    bool close = true;
    const double tolerance = default_tolerance(variants_.front().model.dtype());
    for (size_t i = 1; i < variants_.size(); ++i) {
      Difference difference;
      for (const StepComparison& step : compare_language_models(
               variants_[i].model, variants_.front().model,
               batch_of(bench_.prompts, 1, first_prompt_), kComparedSteps, tolerance)) {
        difference.include(step.difference);
      }
      close = close && difference.within(tolerance);
      Json row = name_of(variants_[i]);
      row["largest_logit_difference"] = difference.largest;
      row["relative_logit_difference"] = difference.relative;
      row["tolerance"] = tolerance;
      row["first_divergence"] = first_difference(first_ids_[i], first_ids_[0]);
      row["tokens_compared"] = first_ids_[i].size();
      document_.add("accuracy", with_model(row));
    }
    return close;
  }

 private:
  Json with_model(const Json& row) const {
    Json result{{"model", name_}};
    result.update(row);
    return result;
  }

  std::string name_;
  const GenerationBench& bench_;
  ResultFile& document_;
  std::vector<ModelVariant> variants_;
  TokenLists first_ids_;
  int64_t first_prompt_ = 0;
};

ExitCode run_bench_generate(const Arguments& arguments) {
  const GenerationPlan plan = plan_generation(generation_request(arguments));
  const auto rounds = static_cast<int>(arguments.integer("rounds", 1, 1000));
  const auto [prompts, source] = prompts_of(arguments, plan);
  choose_threads(arguments.threads(), /*watched=*/false);
  const InterruptGuard guard;
  const Session session = open_session(
      arguments, plan.bundles(), {"warpfuse::sample_tokens", "warpfuse::scaled_masked_softmax"});
  const bool cuda = session.device.is_cuda();
  if (!plan.has_work(cuda)) {
    fail(ExitCode::usage, "nothing to measure: no prompt with {} more tokens fits a context{}",
         plan.tokens, cuda ? "" : ", or --graph is on alone, which a CPU does not have");
  }
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  const c10::InferenceMode inference;
  const GenerationBench bench{
      .runtime = runtime.get(),
      .read_bytes_per_us = measure_read_bandwidth(session.device, runtime.get()),
      .rounds = rounds,
      .prompts = prompts};
  Json head = identity_of(arguments.command_line(), session.plugin, runtime.get());
  head["read_gb_per_s"] = bench.read_bytes_per_us / 1e3;
  head["prompts"] = {{"source", source}, {"ids", prompts}};
  ResultFile document(kGenerationFormat, head, {"rows", "prefill", "accuracy"},
                      arguments.optional_text("json"));
  print("reading: {:.0f} GB/s\n", bench.read_bytes_per_us / 1e3);
  bool close = true;
  const StatusLine line;
  for (const BundleGroup& group : plan.groups) {
    if (interrupted()) {
      break;
    }
    line.show(fmt::format("loading {} bundles of {}", group.size(), group.front().model));
    GroupRun run(group, arguments.has("rewrite"), session.device, bench, document);
    line.clear();
    const LanguageModelSpec model = language_model_of(group.front());
    for (const GenerationCase& c : plan.cases(model, cuda)) {
      if (!interrupted()) {
        run.decode(c);
      }
    }
    for (const auto& [batch, prompt] : plan.prefills_within(model.context)) {
      if (!interrupted()) {
        run.prefill(batch, prompt);
      }
    }
    close = (interrupted() || run.compare()) && close;
  }
  if (interrupted()) {
    fail(ExitCode::interrupted, "interrupted; what was measured is kept");
  }
  document.set_complete();
  return close ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command bench_generate_command() {
  return {
      .name = "bench generate",
      .help =
          "Times greedy generation by all variants of a model, in turn. -m names a folder of\n"
          "bundles, one for each variant and dtype. Without CUDA graphs only the smallest batch\n"
          "is measured. Exit code 1: a variant's logits are too far from the baseline's.\n",
      .examples =
          "  warpfuse bench generate -m bundles/wikitext-small\n"
          "  warpfuse bench generate -m bundles/gpt2 --batch 1,32 --prompt 32,512 --prefill 8x1024 "
          "--json F\n",
      .options = {{kBenchGenerateOptions}, {kDeviceOptions}, {kPluginOptions}, {kTuningOption}},
      .run = run_bench_generate};
}

}  // namespace warpfuse::host
