#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <c10/core/InferenceMode.h>
#include <warpfuse/softmax.h>

#include "bench/results.h"
#include "commands/commands.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/output.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

using namespace bench;

// Shapes whose work is shorter than the call: only the host's time shows.
constexpr int64_t kOverheadRows = 8, kCpuColumns = 64, kCudaColumns = 1024;
constexpr int kCalls = 200;  // per sample; a stream's queue has room for them

constexpr Option kBenchOverheadOptions[] = {
    {"rounds", "N", "samples of each call", "100"},
    {"json", "F", "write the results as JSON"},
};

// Autograd mode of the calls.
struct Mode {
  const char* name;
  bool inference, requires_grad;
};
constexpr Mode kModes[] = {
    {"inference", true, false}, {"grad mode", false, false}, {"gradient wanted", false, true}};

struct Pair {
  const char* name;
  at::Tensor (*plugin)(const at::Tensor&);
  at::Tensor (*aten)(const at::Tensor&);
};
constexpr Pair kPairs[] = {
    {"softmax", [](const at::Tensor& x) { return warpfuse::softmax(x, -1); },
     [](const at::Tensor& x) { return at::softmax(x, -1); }},
    {"log_softmax", [](const at::Tensor& x) { return warpfuse::log_softmax(x, -1); },
     [](const at::Tensor& x) { return at::log_softmax(x, -1); }}};

// Microseconds per call of one sample.
double sample(at::Tensor (*call)(const at::Tensor&), const at::Tensor& x, CudaRuntime* runtime) {
  const double us = timed_us(nullptr, [&] {
    for (int i = 0; i < kCalls; ++i) {
      call(x);
    }
  });
  if (runtime != nullptr) {
    runtime->synchronize();
  }
  return us / kCalls;
}

// Null where an interrupt left no sample.
Json measure(const Pair& pair, const Mode& mode, c10::Device device, CudaRuntime* runtime,
             int rounds) {
  const std::optional<c10::InferenceMode> inference =
      mode.inference ? std::make_optional<c10::InferenceMode>() : std::nullopt;
  const at::AutoGradMode grad(!mode.inference);
  const at::Tensor x = at::randn({kOverheadRows, device.is_cuda() ? kCudaColumns : kCpuColumns},
                                 at::TensorOptions(device))
                           .set_requires_grad(mode.requires_grad);
  std::vector<double> plugin, aten;
  for (int round = -1; round < rounds && !interrupted(); ++round) {
    const double ours = sample(pair.plugin, x, runtime), theirs = sample(pair.aten, x, runtime);
    if (round >= 0) {  // the first is not counted
      plugin.push_back(ours);
      aten.push_back(theirs);
    }
  }
  if (plugin.empty()) {
    return {};
  }
  const Percentiles ours = percentiles_of(plugin), theirs = percentiles_of(aten);
  print("{:<12}{:<17}{:>7.2f} us [{:.2f}, {:.2f}]   ATen {:>6.2f} us [{:.2f}, {:.2f}]   {:.2f}x\n",
        pair.name, mode.name, ours.p50, ours.p5, ours.p95, theirs.p50, theirs.p5, theirs.p95,
        ours.p50 / theirs.p50);
  const auto json = [](const Percentiles& p) {
    return Json{{"p5_us", p.p5}, {"p50_us", p.p50}, {"p95_us", p.p95}};
  };
  return {{"operator", pair.name},
          {"mode", mode.name},
          {"warpfuse", json(ours)},
          {"aten", json(theirs)},
          {"ratio", ours.p50 / theirs.p50}};
}

ExitCode run_bench_overhead(const Arguments& arguments) {
  const auto rounds = static_cast<int>(arguments.integer("rounds", 1, 100'000));
  choose_threads(arguments.threads(), /*watched=*/false);
  const Session session = open_session(arguments, {}, {"warpfuse::build_info"});
  require_operators({"warpfuse::softmax", "warpfuse::log_softmax"}, "bench overhead");
  const std::unique_ptr<CudaRuntime> runtime = open_cuda_runtime(session.device);
  const InterruptGuard guard;
  ResultFile results("warpfuse-overhead-1",
                     identity_of(arguments.command_line(), session.plugin, runtime.get()), {"rows"},
                     arguments.optional_text("json"));
  print("host time per call: median [5 %, 95 %] of {} samples of {} calls\n", rounds, kCalls);
  for (const Pair& pair : kPairs) {
    for (const Mode& mode : kModes) {
      if (interrupted()) {
        break;
      }
      if (Json row = measure(pair, mode, session.device, runtime.get(), rounds); !row.is_null()) {
        results.add("rows", std::move(row));
      }
    }
  }
  if (interrupted()) {
    fail(ExitCode::interrupted, "interrupted");
  }
  results.set_complete();
  return ExitCode::ok;
}

}  // namespace

Command bench_overhead_command() {
  return {.name = "bench overhead",
          .help =
              "Times the host's part of a call beside ATen's, without a graph: softmax and "
              "log_softmax of\n"
              "[8, 64] on the CPU, of [8, 1024] on a GPU, in inference mode, in grad mode, and "
              "where a\n"
              "gradient is wanted. Samples of 200 calls are taken in turn.\n",
          .examples =
              "  warpfuse bench overhead --device cpu\n"
              "  warpfuse bench overhead --device cuda --json overhead.json\n",
          .options = {{kBenchOverheadOptions}, {kDeviceOptions}, {kPluginOptions}, {kTuningOption}},
          .run = run_bench_overhead};
}

}  // namespace warpfuse::host
