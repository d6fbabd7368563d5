#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "commands/arguments.h"
#include "commands/commands.h"
#include "runtime/load/model.h"
#include "runtime/load/session.h"
#include "runtime/output.h"
#include "runtime/score/verification.h"
#include "runtime/text/prompts.h"
#include "runtime/text/tokenizer.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kMaxSteps = 1'000'000;

constexpr const char* kVerifyExamples =
    "  warpfuse verify bundles/wikitext-small/fused-float32 "
    "bundles/wikitext-small/baseline-float32\n"
    "  warpfuse verify MODEL REFERENCE --prompts prompts.txt -n 64 --device cuda\n";

// Taken when no --prompts are given: prose, one token, punctuation with digits, not only ASCII, and
// the empty prompt, which stands for <|endoftext|>.
constexpr std::array<const char*, 5> kDefaultPrompts{
    "The river rises in the hills north of the town and flows through three counties before it",
    "The", "In 1998 , the band released 2 albums ( and a third , \" live \" , in 2001 ) .",
    "The caf\xC3\xA9 on the corner of M\xC3\xBCnchener Stra\xC3\x9F"
    "e",
    ""};

constexpr Option kVerifyOptions[] = {
    {"model", "DIR", "bundle folder"},
    {"reference", "DIR", "bundle folder"},
    {"prompts", "F",
     "file with one prompt per line, as text or as JSON (default: 5 prompts that are built in)"},
    {"n,steps", "N", "steps for each prompt, or draws of a module's inputs", "16"},
    {"tolerance", "X",
     "default: 5e-5 for float32, 1e-2 float16, 8e-2 bfloat16; the coarser of both bundles"},
    {"seed", "SEED", "of the inputs of a module that is no language model", "0"},
};

cxxopts::Options verify_options() {
  cxxopts::Options options(
      "warpfuse verify",
      "Runs two bundles on the same inputs and compares what they give, step by step.\n"
      "A step passes when each row's largest difference is at most tolerance x the row's\n"
      "largest |reference output|, and both pick the same greedy tokens or the reference's\n"
      "lead is within that too. NaN is a difference. Exit code 0: all steps pass, 1: not.\n");
  options.positional_help("MODEL REFERENCE");
  add_options(options, kVerifyOptions);
  add_device_option(options);
  add_plugin_options(options);
  add_help_option(options);
  return options;
}

std::vector<Prompt> verified_prompts(const Arguments& arguments) {
  if (arguments.has("prompts")) {
    return read_prompts(arguments.text("prompts"));
  }
  std::vector<Prompt> prompts(kDefaultPrompts.size());
  std::ranges::transform(kDefaultPrompts, prompts.begin(), [](const char* text) {
    return Prompt{.text = text, .source = {}, .id = {}};
  });
  return prompts;
}

void require_same_kind(const Bundle& model, const Bundle& reference) {
  const auto different = [&](const char* what) {
    fail(ExitCode::model, "{} and {} cannot be compared: their {} differ", model.folder.string(),
         reference.folder.string(), what);
  };
  if (model.language_model.has_value() != reference.language_model.has_value()) {
    different("kinds");
  }
  if (model.language_model && reference.language_model &&
      model.language_model->vocab_size != reference.language_model->vocab_size) {
    different("vocabulary sizes");
  }
}

double tolerance_of(const Arguments& arguments, const Bundle& model, const Bundle& reference) {
  if (arguments.has("tolerance")) {
    return arguments.number("tolerance", 0.0);
  }
  return std::max(default_tolerance(model.dtype), default_tolerance(reference.dtype));
}

// Prints the table and the verdict.
ExitCode report(const std::vector<StepComparison>& steps, double tolerance) {
  print("{:<10}  {:>18}  {:>17}  {:>9}  {}\n", "step", "largest difference", "relative to a row",
        "tolerance", "greedy tokens that agree");
  Difference overall;
  GreedyCount greedy;
  bool pass = true;
  for (const StepComparison& step : steps) {
    const bool step_passes = step.difference.within(tolerance) && step.greedy.agrees();
    const std::string tokens =
        step.greedy.rows == 0 ? "-" : fmt::format("{} of {}", step.greedy.equal, step.greedy.rows);
    print("{:<10}  {:>18.3g}  {:>17.3g}  {:>9.3g}  {}{}\n", step.name, step.difference.largest,
          step.difference.relative, tolerance, tokens, step_passes ? "" : "  FAIL");
    overall.include(step.difference);
    greedy.rows += step.greedy.rows;
    greedy.equal += step.greedy.equal;
    greedy.ties += step.greedy.ties;
    pass = pass && step_passes;
  }
  print("{}: largest difference {:.3g}, {:.3g} relative to a row", pass ? "agree" : "DIFFER",
        overall.largest, overall.relative);
  if (greedy.rows > 0) {
    print(", greedy tokens {} of {} ({} ties)", greedy.equal, greedy.rows, greedy.ties);
  }
  print("\n");
  return pass ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

ExitCode run_verify(int argc, const char* const* argv) {
  const Arguments arguments(verify_options(), {"model", "reference"}, argc, argv);
  if (arguments.help_shown(kVerifyExamples)) {
    return ExitCode::ok;
  }
  choose_threads(arguments.threads(), /*watched=*/true);
  const Bundle model = read_bundle(arguments.text("model"));
  const Bundle reference = read_bundle(arguments.text("reference"));
  require_same_kind(model, reference);
  const int64_t steps = arguments.integer("steps", 1, kMaxSteps);
  const auto seed = static_cast<uint64_t>(arguments.integer("seed", 0));
  const double tolerance = tolerance_of(arguments, model, reference);
  const std::vector<Prompt> prompts = verified_prompts(arguments);

  const Session session =
      open_session(arguments.plugin_options(), arguments.text("device"), {model, reference});
  const auto print_heading = [&] {
    print("model      {} ({})\nreference  {} ({})\ndevice     {}\n", model.folder.string(),
          model.variant, reference.folder.string(), reference.variant, session.device.str());
  };
  if (!model.language_model) {
    torch::jit::Module module = load_module(model, session.device);
    torch::jit::Module reference_module = load_module(reference, session.device);
    print_heading();
    return report(
        compare_modules(module, reference_module, reference.inputs, session.device, steps, seed),
        tolerance);
  }
  const LanguageModel language_model = load_language_model(model, session.device);
  const LanguageModel reference_model = load_language_model(reference, session.device);
  print_heading();
  const std::vector<std::vector<int64_t>> sequences =
      encode(Tokenizer::load(reference.folder), prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    language_model.require_fits(static_cast<int64_t>(sequences[i].size()), prompts[i].source);
  }
  return report(
      compare_language_models(language_model, reference_model, sequences, steps, tolerance),
      tolerance);
}

}  // namespace warpfuse::host
