#include <c10/core/InferenceMode.h>
#include <fmt/ranges.h>

#include <deque>
#include <ranges>
#include <thread>

#include "bench/plan.h"
#include "commands/commands.h"
#include "rowwise/tuning.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/files.h"
#include "runtime/output.h"
#include "runtime/parse.h"
#include "runtime/threads.h"
#include "tune/candidates.h"
#include "tune/measure.h"

namespace warpfuse::host {
namespace {

using tune::RowClass;

constexpr const char* kTuneHelp =
    "Measures which compiled kernel is fastest for rows of each size on this GPU, and writes\n"
    "a table for WARPFUSE_TUNING or --tuning. Results are checked, and a line is kept only if\n"
    "it wins by more than noise. Exit code 1: a result was wrong, and its line is left out;\n"
    "130: interrupted (the table has what was found so far).\n";

constexpr Option kTuneOptions[] = {
    {"out", "F", "file to write the table to (default: stdout)"},
    {"quick", kSwitch, "shorter samples, and 2 minutes at most"},
    {"minutes", "X", "the most minutes to take (default: 8)"},
    {"functions", "LIST", "softmax, attention, masks, dropout, dropout_first, columns",
     "softmax,attention,masks,dropout,dropout_first,columns"},
    {"tuning", "F", "the table to start from (default: the plugin's)"},
    {"device", "DEVICE", "cuda or cuda:<index>", "cuda"},
};

constexpr bench::Effort kRough{
    .rounds = 3, .short_rounds = 1, .sample_us = 100, .large_copy_bytes = 0};
constexpr bench::Effort kFine{
    .rounds = 9, .short_rounds = 1, .sample_us = 600, .large_copy_bytes = 0};
constexpr bench::Effort kQuickFine{
    .rounds = 5, .short_rounds = 1, .sample_us = 400, .large_copy_bytes = 0};
constexpr double kMinutes = 8, kQuickMinutes = 2, kMaxMinutes = 60;
constexpr double kTableSeconds = 5;  // of that time: the program starts, and the table is made
constexpr double kBusyShare = 0.05;

std::vector<tune::Function> functions_of(const std::string& list) {
  std::vector<tune::Function> functions;
  for (const std::string& name : split_list(list)) {
    const auto function = bench::value_in(tune::kFunctionNames, name);
    if (!function) {
      fail(ExitCode::usage, "--functions: expected a list of {}, got '{}'",
           fmt::join(tune::kFunctionNames | std::views::values, ", "), name);
    }
    bench::add_once(functions, *function);
  }
  return functions;
}

Tuning start_table(const Arguments& arguments) {
  const bool named = arguments.has("tuning");
  const std::string text =
      named ? read_file(arguments.text("tuning"), ExitCode::usage) : tuning_text();
  try {
    return parse_tuning(text);
  } catch (const std::invalid_argument& error) {
    fail(ExitCode::usage, "{}: {}", named ? "--tuning " + arguments.text("tuning") : "the plugin",
         error.what());
  }
}

RowLimits limits_of(const CudaDevice& gpu) {
  return {.shared_bytes = static_cast<size_t>(gpu.block_shared_bytes) - kStaticSharedBytes,
          .cluster_blocks = gpu.capability < 90         ? 1
                            : gpu.capability / 10 <= 10 ? 16
                                                        : 8,
          .multiprocessors = static_cast<int>(gpu.multiprocessors),
          .cooperative = gpu.cooperative};
}

// Says so where other programs' kernels run: nothing of ours has yet.
void tell_if_busy(bench::GpuClock* clock) {
  double most = 0;
  for (int i = 0; i < 3 && clock != nullptr; ++i) {
    most = std::max(most, clock->busy_share().value_or(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (most > kBusyShare) {
    print_error(
        "warpfuse: warning: the GPU was busy {:.0f} % of the time before the start; lines "
        "may be lost to its noise\n",
        100 * most);
  }
}

struct TuneRun {
  std::vector<tune::Win> wins = {};
  std::vector<std::string> notes = {};  // of each class that has a win
  std::vector<std::string> wrong = {};
  size_t measured = 0, throttled = 0, without_memory = 0;
  std::deque<RowClass> left = {};  // to be measured

  size_t all() const { return measured + left.size(); }
};

TuneRun measure_all(const std::vector<RowClass>& classes, tune::Meter& meter, tune::Budget budget,
                    std::chrono::steady_clock::time_point start) {
  TuneRun run{.left = {classes.begin(), classes.end()}};
  const StatusLine line;
  while (!run.left.empty() && !interrupted() && budget.allows_another(seconds_since(start))) {
    const RowClass c = run.left.front();
    const size_t all = run.all();
    run.left.pop_front();
    const double begun = seconds_since(start);
    const auto left = static_cast<int>(tune::seconds_left(budget, begun, run.measured, all));
    line.show(fmt::format("[{}/{}] {}, {}:{:02} left", run.measured + 1, all, c.text(), left / 60,
                          left % 60));
    const tune::Outcome outcome = meter.measure(c);
    budget.add(seconds_since(start) - begun);
    ++run.measured;
    run.throttled += outcome.throttled ? 1 : 0;
    run.without_memory += outcome.out_of_memory ? 1 : 0;
    if (outcome.divided) {
      const std::vector<RowClass> halves = tune::halves_of(c);
      run.left.insert(run.left.begin(), halves.begin(), halves.end());
    }
    if (outcome.wrong) {
      run.wrong.push_back(*outcome.wrong);
    }
    if (!outcome.wins.empty()) {
      std::string runs;
      for (const tune::Win& win : outcome.wins) {
        runs += (runs.empty() ? "" : "; ") + tune::run_text(win.run);
      }
      // Before those of a class that this is a half of.
      run.wins.insert(run.wins.begin(), outcome.wins.begin(), outcome.wins.end());
      run.notes.push_back(fmt::format("{}: {}, {:.3f}x", c.text(), runs, outcome.gain));
    }
  }
  return run;
}

std::string table_text(const TuneRun& run, const Tuning& table, const CudaDevice& gpu,
                       const std::string& summary) {
  std::string text = gpu_line({.name = gpu.name,
                               .capability = gpu.capability,
                               .multiprocessors = static_cast<int>(gpu.multiprocessors)});
  text += fmt::format("# warpfuse tune: {}\n", summary);
  for (const std::string& note : run.notes) {
    text += fmt::format("# {}\n", note);
  }
  text += table.to_string();
  try {
    parse_tuning(text);
  } catch (const std::invalid_argument& error) {
    fail(ExitCode::check_failed, "tune: internal error: no table is written, since its {}",
         error.what());
  }
  return text;
}

void tell_left_out(const TuneRun& run) {
  for (const std::string& wrong : run.wrong) {
    print_error("warpfuse: warning: left out, as its result is wrong: {}\n", wrong);
  }
  if (run.throttled > 0) {
    print_error(
        "warpfuse: warning: {} classes keep their lines, since the GPU's clock was below "
        "{:.0f} % of its highest rate\n",
        run.throttled, 100 * bench::kThrottledShare);
  }
  if (run.without_memory > 0) {
    print_error(
        "warpfuse: warning: {} classes keep their lines, since they do not fit into the "
        "GPU's memory\n",
        run.without_memory);
  }
}

ExitCode run_tune(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const bool quick = arguments.has("quick");
  const double minutes = arguments.has("minutes") ? arguments.number("minutes", 0, kMaxMinutes)
                         : quick                  ? kQuickMinutes
                                                  : kMinutes;
  const std::vector<tune::Function> functions = functions_of(arguments.text("functions"));
  const std::optional<std::string> out = arguments.optional_text("out");
  if (out) {
    require_replaceable(*out);
  }
  const InterruptGuard guard;
  choose_threads({}, /*watched=*/false);
  const c10::InferenceMode inference;
  const Session session = open_session(arguments, {}, {"warpfuse::build_info"});
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  if (!runtime) {
    fail(ExitCode::device, "tune: needs a GPU");
  }
  require_operators({"warpfuse::_set_tuning", "warpfuse::_launches", "warpfuse::_record_launches"},
                    "tune");
  const Tuning table = start_table(arguments);
  const CudaDevice gpu = runtime->device();
  const RowLimits limits = limits_of(gpu);
  tell_if_busy(bench::open_gpu_clock(gpu.pci_bus_id).get());
  const std::unique_ptr<bench::Timer> rough =
      make_cuda_timer(*runtime, session.device, kRough, nullptr);
  const std::unique_ptr<bench::Timer> fine = make_cuda_timer(
      *runtime, session.device, quick ? kQuickFine : kFine, bench::open_gpu_clock(gpu.pci_bus_id));
  tune::Meter meter(table, limits, session.device, *rough, *fine);
  const std::vector<RowClass> classes = classes_of(table, limits, functions);
  const TuneRun run = measure_all(classes, meter, {.seconds = 60 * minutes - kTableSeconds}, start);
  tell_left_out(run);
  const std::string summary =
      fmt::format("{} of {} classes of rows measured in {:.0f} s, {} with faster lines",
                  run.measured, run.all(), seconds_since(start), run.notes.size());
  const std::string text = table_text(run, tune::with_wins(table, run.wins, limits), gpu, summary);
  if (out) {
    replace_file(*out, text);
    for (const std::string& note : run.notes) {
      print("{}\n", note);
    }
    print("{}: {}\n", *out, summary);
  } else {
    print("{}", text);
  }
  if (interrupted()) {
    fail(ExitCode::interrupted,
         "interrupted after {} of {} classes of rows; the table has what was "
         "found until then",
         run.measured, run.all());
  }
  return run.wrong.empty() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command tune_command() {
  return {.name = "tune",
          .summary = "find the fastest kernels for this GPU, and write a table of them",
          .help = kTuneHelp,
          .examples =
              "  warpfuse tune --out table.txt\n"
              "  warpfuse tune --quick --functions softmax --out table.txt\n"
              "  WARPFUSE_TUNING=table.txt warpfuse info\n",
          .options = {{kTuneOptions}, {kPluginOptions}},
          .run = run_tune};
}

}  // namespace warpfuse::host
