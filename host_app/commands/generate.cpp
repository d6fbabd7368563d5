

#include "commands/commands.h"
#include "commands/generate_output.h"
#include "runtime/files.h"
#include "runtime/load/model.h"
#include "runtime/output.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kMaxRows = 4096;
constexpr int64_t kMaxTopLogprobs = 100;
constexpr int64_t kMaxUncachedTokens = 65'536;  // to generate without a cache

constexpr Option kGenerateOptions[] = {
    {"m,model", "MODEL", "bundle folder; or a TorchScript file, which has no cache and is slow"},
    {"tokenizer", "DIR", "folder with vocab.json and merges.txt (default: the bundle)"},
    {"p,prompt", "TEXT", "text to continue, - for stdin; an empty one starts from <|endoftext|>"},
    {"prompt-file", "F", "read the prompt from a file, without the newline at its end"},
    {"prompts", "F", "file with one prompt per line, as text or as JSON; - for stdin"},
    {"batch", "N", "prompts that are continued at the same time", "8"},
    {"n,tokens", "N", "maximum number of tokens to generate for each prompt", "128"},
    {"stop", "TEXT",
     "end before this text, in which \\n, \\t, \\r, \\\\, \\\", \\' and \\xHH are escapes; may be "
     "repeated",
     nullptr, true},
    {"ignore-eos", kSwitch, "do not end at the model's end tokens"},
    {"truncate", kSwitch, "keep only the end of a prompt that is too long for the context"},
};
constexpr Option kSamplingOptions[] = {
    {"temperature", "T", "0 takes the most probable token; higher values vary more", "0"},
    {"top-k", "K", "sample from the K most probable tokens only; 0: from all", "0"},
    {"top-p", "P", "sample from the most probable tokens that make up this probability", "1"},
    {"min-p", "P", "sample from tokens with this share of the highest probability", "0"},
    {"seed", "SEED", "the same seed gives the same text", "0"},
};
constexpr Option kOutputOptions[] = {
    {"no-display-prompt", kSwitch, "print the continuation only"},
    {"json", kSwitch, "print a line of JSON for each prompt"},
    {"logprobs", "N",
     "with --json: log-probabilities of the tokens and of the N most probable at each step"},
};
constexpr Option kExecutionOptions[] = {{"no-graph", kSwitch, "on a GPU: no CUDA graphs"},
                                        kRewriteSwitch};

std::vector<Prompt> prompts_of(const Arguments& arguments) {
  if (arguments.count({"prompt", "prompt-file", "prompts"}) != 1) {
    fail(ExitCode::usage, "expected one of -p TEXT, --prompt-file F and --prompts F (see --help)");
  }
  if (arguments.has("prompts")) {
    return read_prompts(arguments.text("prompts"));
  }
  if (arguments.has("prompt-file")) {
    return {read_prompt(arguments.text("prompt-file"))};
  }
  const std::string text = arguments.text("prompt");
  return {text == "-" ? read_prompt("-") : Prompt{.text = text, .source = {}, .id = {}}};
}

Sampling sampling_of(const Arguments& arguments) {
  const Sampling sampling{.temperature = arguments.number("temperature", 0.0),
                          .top_k = arguments.integer("top-k", 0),
                          .top_p = arguments.number("top-p", 0.0, 1.0),
                          .min_p = arguments.number("min-p", 0.0, 1.0),
                          .seed = arguments.integer("seed", 0)};
  if (sampling.top_p == 0.0) {
    fail(ExitCode::usage, "--top-p: expected a number above 0, got '{}'", arguments.text("top-p"));
  }
  for (const char* name : {"top-k", "top-p", "min-p", "seed"}) {
    if (sampling.temperature == 0.0 && arguments.has(name)) {
      fail(ExitCode::usage,
           "--{} has no meaning at --temperature 0, which takes the most probable token", name);
    }
  }
  return sampling;
}

DecodeOptions decode_options_of(const Arguments& arguments, size_t prompts) {
  const int64_t batch = arguments.integer("batch", 1, kMaxRows);
  DecodeOptions options{.rows = std::min(batch, static_cast<int64_t>(prompts)),
                        .sampling = sampling_of(arguments),
                        .graphs = !arguments.has("no-graph"),
                        .top_logprobs = {}};
  if (arguments.has("logprobs")) {
    options.top_logprobs = arguments.integer("logprobs", 0, kMaxTopLogprobs);
    if (!arguments.has("json")) {
      fail(ExitCode::usage, "--logprobs needs --json, where they are printed");
    }
  }
  return options;
}

OutputOptions output_options_of(const Arguments& arguments) {
  OutputOptions options{.stop_texts = {},
                        .show_prompt = !arguments.has("no-display-prompt"),
                        .json = arguments.has("json")};
  for (const std::string& text : arguments.texts("stop")) {
    if (text.empty()) {
      fail(ExitCode::usage, "--stop: expected a text, got an empty one");
    }
    options.stop_texts.push_back(unescape(text, "--stop"));
  }
  return options;
}

std::string tokenizer_folder(const Arguments& arguments, const ModelPath& model) {
  if (!model.bundle && !arguments.has("tokenizer")) {
    fail(ExitCode::usage,
         "{} is in no bundle, so its tokenizer is missing: --tokenizer DIR, a folder with "
         "vocab.json and merges.txt",
         model.path.string());
  }
  return arguments.optional_text("tokenizer").value_or(model.path.string());
}

// The context of a model in no bundle is what these prompts may take.
LanguageModel load_generator(const ModelPath& model, c10::Device device, bool rewritten,
                             const std::vector<std::vector<int64_t>>& prompts, int64_t tokens) {
  if (model.bundle) {
    return load_language_model(*model.bundle, device, rewritten);
  }
  const auto longest = std::ranges::max(prompts, {}, &std::vector<int64_t>::size).size();
  const int64_t context = static_cast<int64_t>(longest) + std::min(tokens, kMaxUncachedTokens) - 1;
  const LanguageModel loaded = load_uncached_model(model.path, device, context, rewritten);
  print_error(
      "note: {} has no cache, so each token computes its whole sequence again; a bundle of "
      "traced_models/export.py has one\n",
      model.path.string());
  return loaded;
}

// A prompt longer than the context is an error, or with `truncate` keeps only its end:
// context - tokens + 1 tokens, at least half of the context.
void fit_prompts(std::vector<std::vector<int64_t>>& ids, const LanguageModel& model,
                 const std::vector<Prompt>& prompts, bool truncate, int64_t tokens) {
  const int64_t context = model.spec().context;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<int64_t>& encoded = ids[i];
    if (truncate && static_cast<int64_t>(encoded.size()) > context) {
      const int64_t kept = std::max(context - tokens + 1, (context + 1) / 2);
      encoded.erase(encoded.begin(), encoded.end() - kept);
    }
    model.require_fits(static_cast<int64_t>(encoded.size()), prompts[i].source);
    model.require_known(encoded);
  }
}

void report(const GenerationTotals& totals, const SoftmaxCallCounter& calls, const DecodeLoop& loop,
            int64_t context) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  if (!loop.steps().graph_failure().empty()) {
    print_error("note: no CUDA graphs: {}\n", loop.steps().graph_failure());
  }
  if (totals.full_contexts > 0) {
    print_error("note: {} of the continuations ended because the context of {} is full\n",
                totals.full_contexts, context);
  }
  print_error("prefill: {} tokens, {:.1f} tokens/s\n", totals.prompt_tokens,
              rate(totals.prompt_tokens, totals.prefill_seconds));
  print_error("decode: {} tokens, {:.1f} tokens/s\n", totals.decoded_tokens,
              rate(totals.decoded_tokens, totals.decode_seconds));
  print_error("plugin: {} of {} softmax calls\n", calls.by_plugin(), calls.total());
}

ExitCode run_generate(const Arguments& arguments) {
  const InterruptGuard guard;
  const std::string model_path = arguments.text("model");
  const std::vector<Prompt> prompts = prompts_of(arguments);
  GenerationOptions options{.max_tokens = arguments.integer("tokens", 1), .end_tokens = {}};
  DecodeOptions decoding = decode_options_of(arguments, prompts.size());
  const OutputOptions output_options = output_options_of(arguments);

  choose_threads(arguments.threads(), /*watched=*/true);
  const ModelPath named = find_model(model_path);
  const bool truncate = arguments.has("truncate");
  if (truncate && !named.bundle) {
    fail(ExitCode::usage, "--truncate: the context of a model in no bundle is not known");
  }
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_folder(arguments, named));
  const Session session = open_session(arguments, bundles_of({named}), {"warpfuse::sample_tokens"});
  std::vector<std::vector<int64_t>> ids = encode(tokenizer, prompts);
  const LanguageModel model =
      load_generator(named, session.device, arguments.has("rewrite"), ids, options.max_tokens);
  fit_prompts(ids, model, prompts, truncate, options.max_tokens);
  if (!arguments.has("ignore-eos")) {
    options.end_tokens = end_tokens_of(model.spec(), tokenizer);
  }
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  const size_t longest = std::ranges::max(ids, {}, &std::vector<int64_t>::size).size();
  decoding.max_length =
      static_cast<int64_t>(longest) + std::min(options.max_tokens, model.spec().context);
  DecodeLoop loop(model, decoding, runtime.get());
  GenerationOutput output(tokenizer, prompts, ids, output_options,
                          decoding.top_logprobs.has_value());
  const SoftmaxCallCounter calls;
  const GenerationTotals totals = generate(loop, ids, model.spec().context, options, output);
  report(totals, calls, loop, model.spec().context);
  if (totals.interrupted) {
    fail(ExitCode::interrupted, "interrupted; what had been generated is printed");
  }
  return ExitCode::ok;
}

}  // namespace

Command generate_command() {
  return {.name = "generate",
          .summary = "continue a prompt with a traced language model",
          .help = "Continues prompts; the text goes to stdout, figures to stderr.\n",
          .examples =
              "  warpfuse generate -m bundles/wikitext-small/fused-float32 -p \"The river\" -n 64\n"
              "  warpfuse generate -m MODEL --prompt-file prompt.txt --temperature 0.8 --top-k 40 "
              "--seed 7\n"
              "  warpfuse generate -m MODEL --prompts prompts.jsonl --batch 32 --stop \"\\n\\n\" "
              "--json\n"
              "  warpfuse generate -m MODEL -p \"The river\" --device cuda:1 --no-display-prompt\n"
              "  warpfuse generate -m gpt2.pt --tokenizer gpt2 --rewrite -p \"The river\" -n 16\n",
          .options = {{kGenerateOptions},
                      {kSamplingOptions, "Sampling"},
                      {kOutputOptions, "Output"},
                      {kExecutionOptions, "Execution"},
                      {kDeviceOptions},
                      {kPluginOptions},
                      {kTuningOption}},
          .run = run_generate};
}

}  // namespace warpfuse::host
