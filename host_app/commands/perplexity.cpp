#include "runtime/score/perplexity.h"

#include "commands/commands.h"
#include "runtime/files.h"
#include "runtime/output.h"
#include "runtime/parse.h"
#include "runtime/text/tokenizer.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kMaxBatch = 65'536;

constexpr Option kPerplexityOptions[] = {
    {"m,model", "DIR", "bundle folder"},
    {"text", "FILE", "file to score, byte by byte, UTF-8 or not"},
    {"window", "N", "tokens that the model sees at once (default: the model's context)"},
    {"stride", "N", "tokens from one window to the next (default: half a window)"},
    {"batch", "N", "windows in one call of the model; more take more memory", "4"},
    {"json", kSwitch, "the result as one JSON object"},
    kRewriteSwitch,
};

ScoringOptions scoring_options(const Arguments& arguments, int64_t context) {
  const int64_t window =
      arguments.has("window") ? arguments.integer("window", 2, context) : context;
  const int64_t stride = arguments.has("stride") ? arguments.integer("stride", 1, window)
                                                 : std::max<int64_t>(window / 2, 1);
  return {.window = window, .stride = stride, .batch = arguments.integer("batch", 1, kMaxBatch)};
}

std::vector<int64_t> tokens_of(const Tokenizer& tokenizer, const std::string& text,
                               const std::string& path) {
  std::vector<int64_t> ids = tokenizer.encode(text);
  if (ids.size() < 2) {
    fail(ExitCode::usage, "--text {}: expected a text of at least 2 tokens, got {}", path,
         ids.size());
  }
  return ids;
}

void print_text(const Score& score, double bits_per_byte) {
  print(
      "perplexity: {:.4f}\nmean negative log-likelihood: {:.6f} nats per token\n"
      "bits per byte: {:.4f}\nscored: {} tokens, {:.1f} tokens/s\n",
      score.perplexity(), score.mean(), bits_per_byte, score.tokens, score.tokens_per_second());
}

// An infinite figure, of a token that the model holds impossible, is null in JSON.
void print_json(const Score& score, bool complete, double bits_per_byte, int64_t bytes,
                const Bundle& bundle, c10::Device device, const ScoringOptions& options) {
  const nlohmann::ordered_json result{{"complete", complete},
                                      {"perplexity", score.perplexity()},
                                      {"mean_nll_nats", score.mean()},
                                      {"bits_per_byte", bits_per_byte},
                                      {"tokens", score.tokens},
                                      {"bytes", bytes},
                                      {"tokens_per_second", score.tokens_per_second()},
                                      {"window", options.window},
                                      {"stride", options.stride},
                                      {"batch", options.batch},
                                      {"model", bundle.folder.string()},
                                      {"variant", bundle.variant},
                                      {"device", device.str()}};
  print("{}\n", dump(result, 2));
}

ExitCode run_perplexity(const Arguments& arguments) {
  const InterruptGuard guard;
  const std::string folder = arguments.text("model");
  const std::string path = arguments.text("text");
  choose_threads(arguments.threads(), /*watched=*/true);
  const Bundle bundle = read_bundle(folder);
  const ScoringOptions options = scoring_options(arguments, language_model_of(bundle).context);
  const std::string text = read_file(path, ExitCode::usage);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::vector<int64_t> ids = tokens_of(tokenizer, text, path);
  const Session session = open_session(arguments, {bundle}, {"warpfuse::fused_logprob"});
  const LanguageModel model = load_language_model(bundle, session.device, arguments.has("rewrite"));

  const auto predictions = static_cast<int64_t>(ids.size()) - 1;
  const StatusLine line;
  const auto start = std::chrono::steady_clock::now();
  const Score result = score(model, ids, options, [&](const Score& so_far) {
    line.show(fmt::format(
        "{} of {} tokens, {:.1f} tokens/s, perplexity {:.2f}{}", so_far.tokens, predictions,
        so_far.tokens_per_second(), so_far.perplexity(),
        time_left(start, static_cast<double>(so_far.tokens), static_cast<double>(predictions))));
    return !interrupted();
  });
  line.clear();
  const bool complete = result.tokens == predictions;
  // The first token is context alone.
  const std::vector<int64_t> scored(ids.begin() + 1, ids.begin() + 1 + result.tokens);
  const auto bytes = static_cast<int64_t>(tokenizer.decode(scored).size());
  const double bits_per_byte = result.bits_per_byte(bytes);
  if (arguments.has("json")) {
    print_json(result, complete, bits_per_byte, bytes, bundle, session.device, options);
  } else if (complete) {
    print_text(result, bits_per_byte);
  }
  if (!complete) {
    fail(ExitCode::interrupted, "interrupted after {} of {} tokens, perplexity {:.4f} so far",
         result.tokens, predictions, result.perplexity());
  }
  return ExitCode::ok;
}

}  // namespace

Command perplexity_command() {
  return {.name = "perplexity",
          .summary = "score a text with a traced language model",
          .help =
              "Scores a text by a sliding window: each token but the first exactly once, with at "
              "least\n"
              "window - stride + 1 tokens before it once the text is that far.\n",
          .examples =
              "  warpfuse perplexity -m bundles/wikitext-small/fused-float32 --text "
              "wikitext-2/valid.txt\n"
              "  warpfuse perplexity -m MODEL --text book.txt --window 256 --stride 256 --json\n"
              "  warpfuse perplexity -m MODEL --text book.txt --device cuda --batch 32\n",
          .options = {{kPerplexityOptions}, {kDeviceOptions}, {kPluginOptions}, {kTuningOption}},
          .run = run_perplexity};
}

}  // namespace warpfuse::host
