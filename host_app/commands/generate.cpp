#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "commands/arguments.h"
#include "commands/commands.h"
#include "runtime/files.h"
#include "runtime/generation.h"
#include "runtime/model.h"
#include "runtime/session.h"
#include "runtime/softmax_census.h"
#include "runtime/tokenizer.h"
#include "runtime/utf8.h"

namespace warpfuse::host {
namespace {

constexpr const char* kExamples =
    "  warpfuse generate -m bundles/wikitext-small/fused-float32 -p \"The river\" -n 64\n"
    "  warpfuse generate -m MODEL --prompt-file prompt.txt --temperature 0.8 --top-k 40 --seed 7\n"
    "  warpfuse generate -m MODEL -p \"The river\" --device cuda:1 --no-display-prompt\n";

cxxopts::Options make_options() {
  cxxopts::Options options("warpfuse generate",
                           "Continues a prompt; the text goes to stdout, figures to stderr.\n");
  options.add_options()("m,model", "bundle folder", value_option(), "DIR")(
      "p,prompt", "text to continue; an empty one starts from <|endoftext|>", value_option(),
      "TEXT")("prompt-file", "read the prompt from a file, less one newline at its end",
              value_option(),
              "F")("n,tokens", "tokens to generate at most", value_option("128"), "N")(
      "temperature", "0 takes the likeliest token, greater values vary more", value_option("0"),
      "T")("top-k", "sample from the K likeliest tokens only; 0: from all", value_option("0"), "K")(
      "seed", "of the sampling; the same seed gives the same text", value_option("0"), "SEED")(
      "no-display-prompt", "print the continuation only");
  add_device_option(options);
  add_plugin_options(options);
  add_help_option(options);
  return options;
}

std::string read_prompt_file(const std::string& path) {
  std::string text = read_file(path, ExitCode::usage);
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

std::string read_prompt(const Arguments& arguments) {
  if (arguments.has("prompt") == arguments.has("prompt-file")) {
    fail(ExitCode::usage, "expected one of -p TEXT and --prompt-file F (see --help)");
  }
  return arguments.has("prompt") ? arguments.text("prompt")
                                 : read_prompt_file(arguments.text("prompt-file"));
}

void print_now(const std::string& text) { std::cout << text << std::flush; }

void report(const GenerationResult& result, int64_t prompt_tokens, const SoftmaxCensus& census,
            int64_t context) {
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  if (result.stop == StopReason::context_full) {
    fmt::print(stderr, "note: stopped after {} tokens: the context of {} is full\n",
               result.generated, context);
  }
  fmt::print(stderr, "prefill: {} tokens, {:.1f} tokens/s\n", prompt_tokens,
             rate(prompt_tokens, result.prefill_seconds));
  fmt::print(stderr, "decode: {} tokens, {:.1f} tokens/s\n", result.decode_steps,
             rate(result.decode_steps, result.decode_seconds));
  fmt::print(stderr, "plugin: {} of {} softmax calls\n", census.by_plugin(), census.total());
}

}  // namespace

ExitCode run_generate(int argc, const char* const* argv) {
  const Arguments arguments(make_options(), {}, argc, argv);
  if (arguments.help_shown(kExamples)) {
    return ExitCode::ok;
  }
  const std::string folder = arguments.text("model");
  const std::string prompt = read_prompt(arguments);
  const GenerationOptions requested{
      .max_tokens = arguments.integer("tokens", 1),
      .stop_token = std::nullopt,
      .sampling = {.temperature = arguments.number("temperature", 0.0),
                   .top_k = arguments.integer("top-k", 0),
                   .seed = static_cast<uint64_t>(arguments.integer("seed", 0))}};

  const Bundle bundle = read_bundle(folder);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const Session session =
      open_session(arguments.plugin_options(), arguments.text("device"), {bundle});
  Decoder decoder(bundle, load_module(bundle, session.device), session.device);

  const std::vector<int64_t> ids = tokenizer.encode_prompt(prompt);
  decoder.require_fits(static_cast<int64_t>(ids.size()));
  GenerationOptions options = requested;
  options.stop_token = tokenizer.end_of_text();
  Utf8Stream stream;
  if (!arguments.has("no-display-prompt")) {
    print_now(stream.push(prompt));
  }
  const SoftmaxCensus census;
  const GenerationResult result = generate(decoder, ids, options, [&](int64_t id) {
    if (id >= tokenizer.size()) {
      fail(ExitCode::model, "{}: the model gave token {}, its tokenizer has {}", folder, id,
           tokenizer.size());
    }
    print_now(stream.push(tokenizer.bytes(id)));
  });
  print_now(stream.finish() + "\n");
  report(result, static_cast<int64_t>(ids.size()), census, decoder.context());
  return ExitCode::ok;
}

}  // namespace warpfuse::host
