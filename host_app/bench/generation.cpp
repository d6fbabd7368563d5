#include "bench/generation.h"

#include <ATen/ops/ones.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "bench/generation_step.h"
#include "bench/times.h"
#include "runtime/decode/decode_loop.h"
#include "runtime/load/model.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

constexpr int64_t kReadBytesCuda = 4096 * kMebibyte;
constexpr int64_t kReadBytesCpu = 512 * kMebibyte;
constexpr int kReads = 10;

// CPU time of this thread.
double thread_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// One generation.
struct Round {
  double first_token_us = 0;
  double decode_us = 0;
  double host_us = 0;  // per step
  std::vector<double> latencies_us;
};

// Bytes in use by the process, and on the GPU.
struct MemoryInUse {
  int64_t host = 0, device = 0;

  static MemoryInUse now(const CudaRuntime* runtime) {
    std::ifstream file("/proc/self/statm");
    int64_t all_pages = 0, resident_pages = 0;
    file >> all_pages >> resident_pages;
    MemoryInUse use{.host = resident_pages * sysconf(_SC_PAGESIZE)};
    if (runtime != nullptr) {
      const CudaDevice device = runtime->device();
      use.device = device.memory_bytes - device.free_bytes;
    }
    return use;
  }
};

// A variant with its caches and measurements.
struct Measured {
  Measured(const ModelVariant& variant, const GenerationCase& c, CudaRuntime* runtime)
      : variant(variant),
        loop(variant.model,
             {.rows = c.batch,
              .sampling = {},
              .graphs = c.graph,
              .top_logprobs = {},
              .max_length = c.prompt + c.tokens},
             runtime) {}

  const ModelVariant& variant;
  DecodeLoop loop;
  std::vector<Round> rounds;
};

using AllMeasured = std::deque<Measured>;  // which does not move them

AllMeasured with_caches(const std::vector<ModelVariant>& variants, const GenerationCase& c,
                        CudaRuntime* runtime) {
  AllMeasured all;
  for (const ModelVariant& variant : variants) {
    all.emplace_back(variant, c, runtime);
  }
  return all;
}

std::vector<Sequence> sequences_of(const TokenLists& ids, int64_t tokens) {
  std::vector<Sequence> sequences;
  sequences.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    sequences.push_back({.name = static_cast<int64_t>(i), .ids = ids[i], .tokens = tokens});
  }
  return sequences;
}

Round generate_once(DecodeLoop& loop, const std::vector<Sequence>& sequences, int64_t tokens,
                    std::vector<int64_t>* first_row) {
  Round round;
  const WallClock::time_point start = WallClock::now();
  std::vector<SequenceToken> sampled = loop.start(sequences);
  round.first_token_us = microseconds_since(start);
  const auto note = [&] {
    if (first_row != nullptr) {
      first_row->push_back(sampled.front().choice.id);
    }
  };
  note();
  const WallClock::time_point decode_start = WallClock::now();
  const double host_start = thread_us();
  WallClock::time_point last = decode_start;
  for (int64_t token = 1; token < tokens; ++token) {
    sampled = loop.next();
    round.latencies_us.push_back(microseconds_since(last));
    last = WallClock::now();
    note();
  }
  round.decode_us = microseconds_since(decode_start);
  round.host_us = (thread_us() - host_start) / static_cast<double>(tokens - 1);
  return round;
}

Json spread_of(const std::vector<double>& values) {
  return {{"p50", percentile(values, 0.5)},
          {"min", *std::ranges::min_element(values)},
          {"max", *std::ranges::max_element(values)}};
}

// One value per round.
template <typename Figure>
std::vector<double> each_round(const Measured& measured, const Figure& figure) {
  std::vector<double> values;
  values.reserve(measured.rounds.size());
  for (const Round& round : measured.rounds) {
    values.push_back(figure(round));
  }
  return values;
}

double first_token_ms(const Round& round) { return round.first_token_us * 1e-3; }

Json row_of(const GenerationBench& bench, const Measured& measured, const GenerationCase& c) {
  const LanguageModel& model = measured.variant.model;
  const int64_t middle = c.prompt + c.tokens / 2;
  const int64_t cache_bytes = model.cache_bytes(c.batch, middle);
  const auto least_bytes = static_cast<double>(model.weight_bytes() + cache_bytes);
  std::vector<double> latencies;
  for (const Round& round : measured.rounds) {
    latencies.insert(latencies.end(), round.latencies_us.begin(), round.latencies_us.end());
  }
  const Percentiles latency = percentiles_of(latencies);
  const double step_us =
      percentile(each_round(measured, [](const Round& r) { return r.decode_us; }), 0.5) /
      static_cast<double>(c.tokens - 1);
  const int64_t kernels = measured.loop.steps().kernels_per_step();
  Json row = name_of(measured.variant);
  row["graph"] = c.graph;
  row["batch"] = c.batch;
  row["prompt"] = c.prompt;
  if (c.published != nullptr) {
    row["text"] = c.published->text;
  }
  row["tokens"] = c.tokens;
  const auto decoded = static_cast<double>(c.batch * (c.tokens - 1));
  row["tokens_per_s"] =
      spread_of(each_round(measured, [&](const Round& r) { return decoded / r.decode_us * 1e6; }));
  row["ttft_ms"] = spread_of(each_round(measured, first_token_ms));
  row["latency_us"] = {{"p5", latency.p5}, {"p50", latency.p50}, {"p95", latency.p95}};
  row["host_us_per_token"] =
      percentile(each_round(measured, [](const Round& r) { return r.host_us; }), 0.5);
  row["weight_bytes"] = model.weight_bytes();
  row["cache_bytes"] = cache_bytes;
  row["floor_us"] = least_bytes / bench.read_bytes_per_us;
  row["kernels_per_token"] = kernels > 0 ? Json(kernels) : Json();
  row["empty_graph_us"] = kernels > 0 ? Json(empty_kernels_us(*bench.runtime, kernels)) : Json();
  const std::optional<double> softmax_us =
      softmaxes_us(measured.variant.name, model, c.batch, model.slots_for(middle), bench.runtime);
  row["softmax_kernels_share"] = softmax_us ? Json(*softmax_us / step_us) : Json();
  row["capture_note"] = measured.loop.steps().graph_failure().empty()
                            ? Json()
                            : Json(measured.loop.steps().graph_failure());
  return row;
}

}  // namespace

Json name_of(const ModelVariant& variant) {
  return {{"variant", variant.name},
          {"dtype", name_in(kDtypeNames, Precision{variant.model.dtype()})}};
}

TokenLists batch_of(const TokenLists& lists, int64_t rows, int64_t length) {
  TokenLists result;
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<int64_t>& list = lists[row % lists.size()];
    std::vector<int64_t>& ids = result.emplace_back();
    for (int64_t i = 0; i < length; ++i) {
      ids.push_back(list[i % list.size()]);
    }
  }
  return result;
}

double measure_read_bandwidth(c10::Device device, CudaRuntime* runtime) {
  const int64_t bytes = device.is_cuda() ? kReadBytesCuda : kReadBytesCpu;
  const at::Tensor data =
      at::ones({bytes / 4}, at::TensorOptions().dtype(at::kFloat).device(device));
  if (device.is_cpu()) {
    use_huge_pages(data);  // as weights are
  }
  double best_us = 0;
  for (int i = 0; i < kReads; ++i) {
    const double us = timed_us(runtime, [&] { data.sum(); });
    best_us = i == 0 ? us : std::min(best_us, us);
  }
  return static_cast<double>(bytes) / best_us;
}

std::vector<Json> measure_generation(const GenerationBench& bench,
                                     const std::vector<ModelVariant>& variants,
                                     const GenerationCase& c, TokenLists& first_ids) {
  AllMeasured all = with_caches(variants, c, bench.runtime);
  const TokenLists ids = c.published != nullptr
                             ? std::vector(static_cast<size_t>(c.batch), c.published->ids)
                             : batch_of(bench.prompts, c.batch, c.prompt);
  const std::vector<Sequence> sequences = sequences_of(ids, c.tokens);
  first_ids.assign(all.size(), {});
  for (size_t i = 0; i < all.size(); ++i) {
    generate_once(all[i].loop, sequences, c.tokens, &first_ids[i]);
  }
  const MemoryInUse before = MemoryInUse::now(bench.runtime);
  for (int round = 0; round < bench.rounds && (round == 0 || !interrupted()); ++round) {
    for (Measured& each : all) {
      each.rounds.push_back(generate_once(each.loop, sequences, c.tokens, nullptr));
    }
  }
  const MemoryInUse after = MemoryInUse::now(bench.runtime);
  std::vector<Json> rows;
  rows.reserve(all.size());
  for (Measured& each : all) {
    rows.push_back(row_of(bench, each, c));
    // Over the timed rounds of all variants together.
    rows.back()["host_growth_bytes"] = after.host - before.host;
    rows.back()["device_growth_bytes"] = after.device - before.device;
  }
  return rows;
}

std::vector<Json> measure_prefill(const GenerationBench& bench,
                                  const std::vector<ModelVariant>& variants, int64_t batch,
                                  int64_t prompt) {
  const GenerationCase c{.batch = batch, .prompt = prompt, .tokens = 1, .graph = false};
  AllMeasured all = with_caches(variants, c, bench.runtime);
  const TokenLists ids = batch_of(bench.prompts, batch, prompt);
  const std::vector<Sequence> sequences = sequences_of(ids, c.tokens);
  constexpr int kWarmUps = 2;
  for (int round = -kWarmUps; round < bench.rounds && (round <= 0 || !interrupted()); ++round) {
    for (Measured& each : all) {
      const Round once = generate_once(each.loop, sequences, 1, nullptr);
      if (round >= 0) {
        each.rounds.push_back(once);
      }
    }
  }
  std::vector<Json> rows;
  rows.reserve(all.size());
  for (Measured& each : all) {
    Json& row = rows.emplace_back(name_of(each.variant));
    row["batch"] = batch;
    row["prompt"] = prompt;
    row["ms"] = spread_of(each_round(each, first_token_ms));
  }
  return rows;
}

}  // namespace warpfuse::host::bench
