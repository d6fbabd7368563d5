

#include "commands/commands.h"
#include "commands/inputs.h"
#include "runtime/output.h"
#include "runtime/text/prompts.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

constexpr int64_t kMaxSteps = 1'000'000;

// Taken when no --prompts are given: prose, one token, punctuation with digits, not only ASCII, and
// the empty prompt, which stands for <|endoftext|>.
constexpr std::array<const char*, 5> kDefaultPrompts{
    "The river rises in the hills north of the town and flows through three counties before it",
    "The", "In 1998 , the band released 2 albums ( and a third , \" live \" , in 2001 ) .",
    "The caf\xC3\xA9 on the corner of M\xC3\xBCnchener Stra\xC3\x9F"
    "e",
    ""};

constexpr Option kVerifyOptions[] = {
    {"model", "MODEL", "bundle folder, or TorchScript file"},
    {"reference", "REFERENCE", "the model to compare with, in the same form"},
    {"prompts", "F",
     "file with one prompt per line, as text or as JSON (default: 5 built-in prompts)"},
    {"n,steps", "N", "steps for each prompt, or draws of inputs of fixed sizes", "16"},
    {"tolerance", "X",
     "default: 5e-5 for float32, 1e-2 float16, 8e-2 bfloat16; for two dtypes the coarser"},
    {"seed", "SEED", "seed of random inputs", "0"},
    kRewriteSwitch,
};

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

void require_same_kind(const ModelPath& model, const ModelPath& reference) {
  const auto different = [&](const char* what) {
    fail(ExitCode::model, "{} and {} cannot be compared: their {} differ", model.path.string(),
         reference.path.string(), what);
  };
  const Bundle* a = model.language_model();
  const Bundle* b = reference.language_model();
  if ((a == nullptr) != (b == nullptr)) {
    different("kinds");
  }
  if (a != nullptr && b != nullptr &&
      language_model_of(*a).vocab_size != language_model_of(*b).vocab_size) {
    different("vocabulary sizes");
  }
}

// Random inputs; none where prompts are compared.
std::vector<Draw> verified_draws(const Arguments& arguments, const ModelPath& model,
                                 const std::vector<RandomInput>& inputs) {
  const bool is_sized = arguments.has("lengths") || arguments.has("batch");
  if (model.language_model() != nullptr && !is_sized) {
    return {};
  }
  if (is_sized && arguments.has("steps")) {
    fail(ExitCode::usage, "--steps has no meaning with --lengths or --batch");
  }
  return draws_of(arguments, inputs, arguments.integer("steps", 1, kMaxSteps));
}

// A model that reads random inputs.
struct Loaded {
  Forward forward;
  double tolerance;
};

Loaded load_verified(const ModelPath& path, c10::Device device, bool rewritten,
                     const std::vector<RandomInput>& inputs) {
  if (const Bundle* bundle = path.language_model()) {
    return {forward_of(load_language_model(*bundle, device, rewritten)),
            default_tolerance(bundle->dtype)};
  }
  torch::jit::Module module = load_module(path, device);
  if (rewritten) {
    rewrite_loaded(module, path.path.string(), device, {{"forward", rewrite_arguments(inputs)}});
  }
  double tolerance = default_tolerance(path.bundle ? path.bundle->dtype : at::kFloat);
  if (!path.bundle) {
    for (const RandomInput& input : inputs) {
      tolerance = std::max(tolerance, default_tolerance(input.values.dtype));
    }
    for (const at::Tensor& parameter : module.parameters()) {
      tolerance = std::max(tolerance, default_tolerance(parameter.scalar_type()));
    }
  }
  return {forward_of(module), tolerance};
}

// What stands in place of the figures of a step that a model refused.
std::string refusal_in(const StepComparison& step) {
  if (step.both_raise()) {
    return fmt::format("both raise: {}", step.error);
  }
  return step.error.empty() ? fmt::format("only the reference raises: {}", step.reference_error)
                            : fmt::format("only the model raises: {}", step.error);
}

// Prints the table and the verdict.
ExitCode report(const std::vector<StepComparison>& steps, double tolerance) {
  size_t width = 10;
  for (const StepComparison& step : steps) {
    width = std::max(width, step.name.size());
  }
  print("{:<{}}  {:>18}  {:>17}  {:>9}  {}\n", "step", width, "largest difference",
        "relative to a row", "tolerance", "greedy tokens that agree");
  Difference overall;
  GreedyCount greedy;
  bool pass = true;
  for (const StepComparison& step : steps) {
    const char* verdict = step.passes(tolerance) ? "" : "  FAIL";
    pass = pass && step.passes(tolerance);
    if (!step.error.empty() || !step.reference_error.empty()) {
      print("{:<{}}  {}{}\n", step.name, width, refusal_in(step), verdict);
      continue;
    }
    const std::string tokens =
        step.greedy.rows == 0 ? "-" : fmt::format("{} of {}", step.greedy.equal, step.greedy.rows);
    print("{:<{}}  {:>18.3g}  {:>17.3g}  {:>9.3g}  {}{}\n", step.name, width,
          step.difference.largest, step.difference.relative, tolerance, tokens, verdict);
    overall.include(step.difference);
    greedy.rows += step.greedy.rows;
    greedy.equal += step.greedy.equal;
    greedy.ties += step.greedy.ties;
  }
  const auto refused = std::ranges::count_if(steps, &StepComparison::both_raise);
  if (refused == std::ssize(steps)) {
    fail(ExitCode::model, "nothing was compared: {}", refusal_in(steps.front()));
  }
  print("{}: largest difference {:.3g}, {:.3g} relative to a row", pass ? "agree" : "DIFFER",
        overall.largest, overall.relative);
  if (greedy.rows > 0) {
    print(", greedy tokens {} of {} ({} ties)", greedy.equal, greedy.rows, greedy.ties);
  }
  if (refused > 0) {
    print(", both raise in {} of {}", refused, steps.size());
  }
  print("\n");
  return pass ? ExitCode::ok : ExitCode::check_failed;
}

std::string heading_of(const ModelPath& model, bool rewritten) {
  std::string text = model.path.string();
  text += model.bundle ? fmt::format(" ({})", model.bundle->variant) : "";
  return text + (rewritten ? ", rewritten" : "");
}

ExitCode run_verify(const Arguments& arguments) {
  choose_threads(arguments.threads(), /*watched=*/true);
  const ModelPath model = find_model(arguments.text("model"));
  const ModelPath reference = find_model(arguments.text("reference"));
  require_same_kind(model, reference);
  const std::vector<RandomInput> inputs = random_inputs_of(arguments, {reference, model});
  const std::vector<Draw> draws = verified_draws(arguments, model, inputs);
  const int64_t steps = arguments.integer("steps", 1, kMaxSteps);
  const auto seed = static_cast<uint64_t>(arguments.integer("seed", 0));
  const std::vector<Prompt> prompts = verified_prompts(arguments);
  const bool rewritten = arguments.has("rewrite");
  const bool has_tolerance = arguments.has("tolerance");
  const double asked = has_tolerance ? arguments.number("tolerance", 0.0) : 0;
  const auto tolerance_of = [&](double by_default) { return has_tolerance ? asked : by_default; };

  const Session session = open_session(
      arguments, bundles_of({model, reference}),
      rewritten ? std::vector<std::string>{"warpfuse::softmax"} : std::vector<std::string>());
  const auto print_heading = [&] {
    print("model      {}\nreference  {}\ndevice     {}\n", heading_of(model, rewritten),
          heading_of(reference, false), session.device.str());
  };
  const Bundle* bundle = model.language_model();
  const Bundle* reference_bundle = reference.language_model();
  if (!draws.empty() || bundle == nullptr || reference_bundle == nullptr) {
    const Loaded tested = load_verified(model, session.device, rewritten, inputs);
    const Loaded expected = load_verified(reference, session.device, false, inputs);
    print_heading();
    return report(compare_draws(tested.forward, expected.forward, draws, session.device, seed),
                  tolerance_of(std::max(tested.tolerance, expected.tolerance)));
  }
  const LanguageModel language_model = load_language_model(*bundle, session.device, rewritten);
  const LanguageModel reference_model = load_language_model(*reference_bundle, session.device);
  print_heading();
  const std::vector<std::vector<int64_t>> sequences =
      encode(Tokenizer::load(reference.path), prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    language_model.require_fits(static_cast<int64_t>(sequences[i].size()), prompts[i].source);
  }
  const double tolerance = tolerance_of(
      std::max(default_tolerance(bundle->dtype), default_tolerance(reference_bundle->dtype)));
  return report(
      compare_language_models(language_model, reference_model, sequences, steps, tolerance),
      tolerance);
}

}  // namespace

Command verify_command() {
  return {
      .name = "verify",
      .summary = "compare the outputs of two models on the same inputs",
      .help =
          "Runs two models on the same inputs and compares their outputs, step by step.\n"
          "A step passes if each row's largest difference is at most tolerance x the row's\n"
          "largest |reference output|, and both pick the same greedy tokens or the reference's\n"
          "lead is within that too. NaN is a difference. Inputs that both models refuse agree.\n"
          "Exit code 0: all steps pass; 1: a step does not.\n",
      .examples =
          "  warpfuse verify bundles/wikitext-small/fused-float32 "
          "bundles/wikitext-small/baseline-float32\n"
          "  warpfuse verify MODEL REFERENCE --prompts prompts.txt -n 64 --device cuda\n"
          "  warpfuse verify gpt2.pt gpt2.pt --rewrite --input B,T:int64:0..50257 --lengths 1,7,64 "
          "--batch 1,3\n",
      .positional_help = "MODEL REFERENCE",
      .positionals = {"model", "reference"},
      .options = {{kVerifyOptions},
                  {kInputOptions, "Random inputs"},
                  {kDeviceOptions},
                  {kPluginOptions},
                  {kTuningOption}},
      .run = run_verify};
}

}  // namespace warpfuse::host
