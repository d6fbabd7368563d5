#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/InferenceMode.h>

#include <cmath>

#include "bench/results.h"
#include "commands/commands.h"
#include "commands/inputs.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/output.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

using namespace bench;

constexpr Option kBenchModuleOptions[] = {
    {"models", "MODEL...", "bundle folders, or TorchScript files", nullptr, true},
    {"rewrite", kSwitch, "also the first model with its softmax calls routed to the plugin"},
    {"rounds", "N", "samples of each model", "15"},
    {"json", "F", "write the results as JSON, again after each row"},
};

std::vector<ModelPath> timed_models(const Arguments& arguments) {
  std::vector<ModelPath> models;
  for (const std::string& path : arguments.texts("models")) {
    models.push_back(find_model(path));
    if (models.back().language_model() != nullptr) {
      fail(ExitCode::usage, "{}: the bundle of a language model is timed by bench generate", path);
    }
  }
  if (models.empty()) {
    fail(ExitCode::usage, "expected MODEL (see --help)");
  }
  return models;
}

struct TimedModule {
  std::string name;
  torch::jit::Module module;
};

std::vector<TimedModule> load_timed(const std::vector<ModelPath>& models, c10::Device device) {
  std::vector<TimedModule> modules;
  modules.reserve(models.size());
  for (const ModelPath& model : models) {
    modules.push_back({model.path.string(), load_module(model, device)});
  }
  return modules;
}

// Warms up, and finds how many calls make a sample.
void prepare(TimedCall& timed, CudaRuntime* runtime) {
  constexpr double kSampleUs = 10'000;
  timed.call();
  const auto first_us = {timed.sample(runtime), timed.sample(runtime), timed.sample(runtime)};
  timed.set_sample_length(kSampleUs, std::ranges::min(first_us));
}

// A row for each module; the first is the measure of the others.
std::vector<Json> measure(const std::vector<TimedModule>& modules, const Draw& draw, int rounds,
                          c10::Device device, CudaRuntime* runtime) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  std::vector<c10::IValue> inputs;
  std::ranges::copy(random_inputs(draw, generator, device), std::back_inserter(inputs));
  std::vector<Json> rows;
  std::vector<TimedCall> calls(modules.size());
  std::vector<TimedCall*> timed;  // those that do not raise
  for (size_t i = 0; i < modules.size(); ++i) {
    Json& row = rows.emplace_back(Json{{"model", modules[i].name}, {"inputs", draw.name}});
    calls[i].call = [&module = modules[i].module, &inputs] {
      translating_errors(ExitCode::model, "forward", [&] { module.get_method("forward")(inputs); });
    };
    try {
      prepare(calls[i], runtime);
      timed.push_back(&calls[i]);
    } catch (const Error& raised) {
      row["failure"] = raised.what();
    }
  }
  sample_in_turn(timed, rounds, /*least_rounds=*/1, runtime);
  for (const TimedCall* call : timed) {
    const Percentiles us = percentiles_of(call->us);
    Json& row = rows[static_cast<size_t>(call - calls.data())];
    row.update({{"calls_per_sample", call->calls},
                {"rounds", call->us.size()},
                {"p50_us", us.p50},
                {"min_us", std::ranges::min(call->us)},
                {"p5_us", us.p5},
                {"p95_us", us.p95}});
    if (timed.front() == calls.data()) {
      row["speedup"] = percentile(calls.front().us, 0.5) / us.p50;
    }
  }
  return rows;
}

void print_module(const Json& row, size_t width) {
  print("{:<12}{:<{}}", row["inputs"].get<std::string>(), row["model"].get<std::string>(), width);
  if (row.contains("failure")) {
    print("  raises: {}\n", row["failure"].get<std::string>());
    return;
  }
  for (const char* name : {"p50_us", "min_us", "p5_us", "p95_us"}) {
    print("{:>12.1f}", row[name].get<double>());
  }
  print("{:>9}\n",
        row.contains("speedup") ? fmt::format("{:.2f}", row["speedup"].get<double>()) : "-");
  flush_output();
}

ExitCode run_bench_module(const Arguments& arguments) {
  const std::vector<ModelPath> models = timed_models(arguments);
  const std::vector<RandomInput> inputs = random_inputs_of(arguments, models);
  const std::vector<Draw> draws = draws_of(arguments, inputs, 1);
  const auto rounds = static_cast<int>(arguments.integer("rounds", 1, 100'000));
  choose_threads(arguments.threads(), /*watched=*/false);
  const InterruptGuard guard;
  const Session session = open_session(arguments, bundles_of(models), {"warpfuse::softmax"});
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  std::vector<TimedModule> modules = load_timed(models, session.device);
  if (arguments.has("rewrite")) {
    TimedModule again = load_timed({models.front()}, session.device).front();
    rewrite_loaded(again.module, again.name, session.device,
                   {{"forward", rewrite_arguments(inputs)}});
    again.name += ", rewritten";
    modules.insert(modules.begin() + 1, again);
  }
  const c10::InferenceMode inference;
  ResultFile results("warpfuse-module-1",
                     identity_of(arguments.command_line(), session.plugin, runtime.get()), {"rows"},
                     arguments.optional_text("json"));
  const size_t width = std::ranges::max(modules, {}, [](const TimedModule& timed) {
                         return timed.name.size();
                       }).name.size();
  print("{:<12}{:<{}}{:>12}{:>12}{:>12}{:>12}{:>9}\n", "inputs", "model", width, "p50 us", "min",
        "p5", "p95", "speedup");
  int64_t failures = 0;
  for (const Draw& draw : draws) {
    if (interrupted()) {
      break;
    }
    for (Json& row : measure(modules, draw, rounds, session.device, runtime.get())) {
      print_module(row, width);
      failures += row.contains("failure") ? 1 : 0;
      results.add("rows", std::move(row));
    }
  }
  if (interrupted()) {
    fail(ExitCode::interrupted, "interrupted; what was measured is kept");
  }
  results.set_complete();
  if (failures > 0) {
    fail(ExitCode::model, "{} of {} rows raise", failures, draws.size() * modules.size());
  }
  return ExitCode::ok;
}

}  // namespace

Command bench_module_command() {
  return {
      .name = "bench module",
      .help =
          "Times forward of TorchScript modules, in turn, on the same random inputs, without CUDA\n"
          "graphs. The speed-up is over the first model. Results are not compared: see verify.\n",
      .examples =
          "  warpfuse bench module gpt2.pt --rewrite --input B,T:int64:0..50257 --batch 1,8 "
          "--lengths "
          "64,1024\n"
          "  warpfuse bench module bundles/deformable-detr-module/baseline-float32 "
          "bundles/deformable-detr-module/fused-float32\n",
      .positional_help = "MODEL...",
      .positionals = {"models"},
      .options = {{kBenchModuleOptions},
                  {kInputOptions, "Random inputs"},
                  {kDeviceOptions},
                  {kPluginOptions},
                  {kTuningOption}},
      .run = run_bench_module};
}

}  // namespace warpfuse::host
