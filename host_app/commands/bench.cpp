#include <c10/core/InferenceMode.h>

#include "bench/plan.h"
#include "bench/presets.h"
#include "bench/results.h"
#include "bench/row.h"
#include "bench/table.h"
#include "commands/commands.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/files.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

using namespace bench;

constexpr int64_t kGibibyte = int64_t{1024} * 1024 * 1024;
constexpr Effort kFullEffort{
    .rounds = 30, .short_rounds = 15, .sample_us = 4000, .large_copy_bytes = 4 * kGibibyte};
constexpr Effort kQuickEffort{
    .rounds = 8, .short_rounds = 5, .sample_us = 2000, .large_copy_bytes = kGibibyte};
constexpr int64_t kLargeCopyDividerOnCpu = 16;  // caches and memory are smaller there

std::string help_text() {
  std::string text =
      "Times the plugin's operators against ATen and a copy of the same bytes; `bench generate\n"
      "--help` is about whole models, `bench module --help` about TorchScript modules, `bench\n"
      "overhead --help` about the host's time. Every result is checked before it is timed. Exit\n"
      "code 0; 1: a wrong result, or a row below the baseline; 5: a row did not fit into memory;\n"
      "130: interrupted (what was measured is kept).\n\nOperators:\n";
  for (const Benchmark* op : benchmarks()) {
    text += fmt::format("  {}\n", op->name);
  }
  text += "\nPresets of --shapes:\n";
  for (const Preset& preset : kPresets) {
    text += fmt::format("  {:<8}{}\n", preset.name, preset.summary);
  }
  return text;
}

constexpr Option kBenchOptions[] = {
    {"operator", "NAME", "what to measure"},
    {"shapes", "LIST",
     "presets, or sizes such as 1024x8192, 64x4096x64@1 (softmax over dim 1), for "
     "linear_dropout_softmax 128x512x1024 (rows x in x out), or for ms_deform_attn "
     "1x300x8x32x4/25x34/13x17 (batch x queries x heads x channels x points, and levels)",
     "basic"},
    {"dtype", "LIST",
     "float32, float16, bfloat16, float64; on a GPU for linear_dropout_softmax also tf32 "
     "(default: the preset's, else float32)"},
    {"mask", "LIST",
     "none, causal, padding, boolean, additive, positions (default: the preset's, else none)"},
    {"backward", kSwitch, "also the backward passes"},
    {"algorithms", "LIST",
     "by name: all, none or a list (default: the plugin's for softmax, only on 1024x8192); "
     "ms_deform_attn takes those of a library that --op-library opens"},
    {"warm", kSwitch, "the same inputs in every call, instead of more than the caches hold"},
    {"quick", kSwitch, "fewer samples"},
    {"json", "F", "write the results as JSON, again after each row"},
    {"csv", "F", "the same as CSV"},
    {"baseline", "F", "compare with the JSON of an earlier run, by the ratio to the copy"},
    {"fail-under", "X", "the lowest ratio to the baseline that passes", "0.95"},
    {"tuning", "F", "a tuning table for the plugin"},
    {"profile", "VARIANT",
     "run this variant once per row between profiler marks, and print the rows' keys"},
};

Request request_of(const Arguments& arguments) {
  return {.op = arguments.text("operator"),
          .shapes = arguments.text("shapes"),
          .dtypes = arguments.optional_text("dtype"),
          .masks = arguments.optional_text("mask"),
          .backward = arguments.has("backward")};
}

// A variant that is profiled may be any algorithm, unless a list says which there are.
Algorithms algorithms_of(const Arguments& arguments, bool cuda, const std::vector<Case>& cases) {
  std::optional<std::string> asked = arguments.optional_text("algorithms");
  if (!asked && arguments.has("profile")) {
    asked = "all";
  }
  Algorithms algorithms(asked, cuda, cases);
  require_operators(algorithms.operators(cases), "bench --algorithms");
  return algorithms;
}

Effort effort_of(const Arguments& arguments, bool cuda) {
  Effort effort = arguments.has("quick") ? kQuickEffort : kFullEffort;
  effort.warm = arguments.has("warm");
  if (!cuda) {
    effort.large_copy_bytes /= kLargeCopyDividerOnCpu;
  }
  return effort;
}

struct Outcome {
  bool all_right = true;      // no result of the plugin is wrong
  size_t without_memory = 0;  // rows that did not fit
};

// Measures row by row until all are done or the user interrupts.
Outcome measure(const std::vector<Case>& cases, const Algorithms& algorithms, c10::Device device,
                Timer& timer, const Timer::LargeCopy& copy, ResultFile& results) {
  const StatusLine line;
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  for (size_t i = 0; i < cases.size() && !interrupted(); ++i) {
    line.show(
        fmt::format("[{}/{}] {}{}", i + 1, cases.size(), text_of(cases[i]),
                    time_left(start, static_cast<double>(i), static_cast<double>(cases.size()))));
    try {
      Row row = measure_row(cases[i], algorithms.of(cases[i]), device, timer, copy);
      line.clear();
      outcome.all_right = outcome.all_right && !row.wrong;
      results.add("rows", std::move(row.json));
      print_row(results.rows().back());
    } catch (...) {
      if (!is_out_of_memory(std::current_exception())) {
        throw;
      }
      line.clear();
      print("{}  skipped: out of memory\n", text_of(cases[i]));
      ++outcome.without_memory;
    }
    timer.release_memory();
  }
  return outcome;
}

// What the rows need of the device and the plugin, whose table --tuning replaces.
void prepare_bench(const Arguments& arguments, const std::vector<Case>& cases, bool cuda) {
  const auto tf32 = std::ranges::find_if(cases, &Case::tf32);
  if (tf32 != cases.end() && !cuda) {
    fail(ExitCode::usage, "--dtype: tf32 needs a GPU, for {}", text_of(*tf32));
  }
  require_operators(operators_of(cases), "bench");
  if (arguments.has("tuning")) {
    const std::string path = arguments.text("tuning");
    set_tuning(read_file(path, ExitCode::usage), path);
  }
}

// One of them would be written over the other.
void require_two_files(const std::string& json, const std::string& csv) {
  const auto whole = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal();
  };
  if (whole(json) == whole(csv)) {
    fail(ExitCode::usage, "--csv: expected another file than that of --json, got '{}'", csv);
  }
}

ExitCode run_bench(const Arguments& arguments) {
  const std::vector<Case> cases = plan(request_of(arguments));
  const double limit = arguments.number("fail-under", 0);
  if (arguments.has("fail-under") && !arguments.has("baseline")) {
    fail(ExitCode::usage, "--fail-under: needs a --baseline to compare with");
  }
  if (arguments.has("json") && arguments.has("csv")) {
    require_two_files(arguments.text("json"), arguments.text("csv"));
  }
  Json baseline;
  if (arguments.has("baseline")) {
    baseline = read_results(arguments.text("baseline"));
    require_common_row(baseline, cases, arguments.text("baseline"));
  }
  choose_threads(arguments.threads(), /*watched=*/false);
  const c10::InferenceMode inference;
  const Session session = open_session(arguments, {}, {"warpfuse::build_info"});
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  const bool cuda = runtime != nullptr;
  prepare_bench(arguments, cases, cuda);
  const Algorithms algorithms = algorithms_of(arguments, cuda, cases);
  if (arguments.has("profile")) {
    if (!cuda) {
      fail(ExitCode::device, "--profile: needs a GPU");
    }
    profile_rows(cases, arguments.text("profile"), algorithms, session.device, *runtime);
    return ExitCode::ok;
  }

  const InterruptGuard guard;
  const Effort effort = effort_of(arguments, cuda);
  const std::unique_ptr<Timer> timer =
      cuda ? make_cuda_timer(*runtime, session.device, effort,
                             open_gpu_clock(runtime->device().pci_bus_id))
           : make_cpu_timer(effort);
  const Timer::LargeCopy copy = timer->large_copy();
  timer->release_memory();
  ResultFile results(kFormat,
                     head_of(arguments.command_line(), session.plugin, runtime.get(), *timer, copy),
                     {"rows"}, arguments.optional_text("json"), arguments.optional_text("csv"));
  print_head(results.document());
  const Outcome outcome = measure(cases, algorithms, session.device, *timer, copy, results);
  const size_t measured = results.rows().size();
  print_launches(results.rows());
  bool holds = true;
  if (arguments.has("baseline") && measured > 0) {
    holds = report_comparison(compare_with(baseline, results.rows()), limit);
  }
  if (measured + outcome.without_memory < cases.size()) {
    fail(ExitCode::interrupted, "interrupted after {} of {} rows", measured, cases.size());
  }
  if (outcome.without_memory > 0) {
    fail(ExitCode::device, "{} of {} rows do not fit into memory", outcome.without_memory,
         cases.size());
  }
  results.set_complete();
  return outcome.all_right && holds ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command bench_command() {
  return {.name = "bench",
          .summary = "time the operators against ATen and a copy of the same bytes",
          .help = help_text(),
          .examples =
              "  warpfuse bench softmax\n"
              "  warpfuse bench all --shapes table --json table.json --csv table.csv\n"
              "  warpfuse bench softmax --shapes 4096x50257,64x4096x64@1 --dtype float32,bfloat16 "
              "--backward\n"
              "  warpfuse bench scaled_masked_softmax --shapes 12x1024x1024 --mask causal,boolean "
              "--device "
              "cpu\n"
              "  warpfuse bench fused_logprob --shapes logprob --json logprob.json\n"
              "  warpfuse bench linear_dropout_softmax --shapes 128x1024x1024 --backward\n"
              "  warpfuse bench ms_deform_attn --shapes 1x300x8x32x4/25x34/13x17 --backward\n"
              "  warpfuse bench all --baseline table.json --shapes table --fail-under 0.95\n",
          .positional_help = "OPERATOR|all",
          .positionals = {"operator"},
          .options = {{kBenchOptions}, {kDeviceOptions}, {kPluginOptions}},
          .run = run_bench};
}

}  // namespace warpfuse::host
