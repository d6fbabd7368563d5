#include "bench/row.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "bench/benchmark.h"
#include "bench/suites/attention_inputs.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

constexpr const char* kStatusNames[] = {"ok", "wrong", "unsupported"};

// The copy with the smallest median.
Timing fastest(const std::vector<Timing>& timings, size_t first) {
  Timing best;
  for (size_t i = first; i < timings.size(); ++i) {
    if (timings[i].failure.empty() && (best.call.p50 == 0 || timings[i].call.p50 < best.call.p50)) {
      best = timings[i];
    }
  }
  if (best.call.p50 == 0) {
    fail(ExitCode::device, "the copy beside the row cannot be timed: {}", timings[first].failure);
  }
  return best;
}

void add_timing(VariantResult& result, const Timing& timing) {
  if (timing.failure.empty()) {
    result.timing = timing;
    return;
  }
  using enum Checked::Status;
  const bool fault_of_plugin =
      result.kind != Variant::Kind::aten && timing.failure.find(kNoMemory) == std::string::npos;
  result.check.status = fault_of_plugin ? wrong : unsupported;
  result.check.reason = timing.failure;
}

// The time of ATen's operator or chain; empty where it has none.
std::optional<double> peer_us(const Row& row) {
  for (const VariantResult& result : row.variants) {
    if (result.kind == Variant::Kind::aten && result.timing) {
      return result.timing->call.p50;
    }
  }
  return std::nullopt;
}

void add_times(Json& json, const Timing& timing) {
  json["p50_us"] = timing.call.p50;
  json["p5_us"] = timing.call.p5;
  json["p95_us"] = timing.call.p95;
  if (timing.discarded > 0) {
    json["discarded_samples"] = timing.discarded;
  }
  if (timing.throttled) {
    json["throttled"] = true;
  }
}

template <typename Value>
void add_optional(Json& json, const char* key, const std::optional<Value>& value) {
  if (value) {
    json[key] = *value;
  }
}

double floor_us(const Row& row) {
  return static_cast<double>(row.bytes.least) / row.large_copy.bytes_per_us();
}

Json to_json(const VariantResult& result, const Row& row) {
  const Checked& check = result.check;
  Json json{{"name", result.name}, {"status", kStatusNames[static_cast<size_t>(check.status)]}};
  if (!check.reason.empty()) {
    json["reason"] = check.reason;
  }
  add_optional(json, "max_error", check.error);  // NaN becomes null
  add_optional(json, "extra_bytes", check.extra_bytes);
  if (const std::optional<Timing>& timing = result.timing) {
    const double us = timing->call.p50;
    add_times(json, *timing);
    add_optional(json, "event_p50_us", timing->event_p50);
    add_optional(json, "default_malloc_p50_us", timing->default_malloc_p50);
    json["gb_per_s"] = static_cast<double>(row.bytes.least) / us / 1e3;
    json["share"] = floor_us(row) / us;
    json["copy_ratio"] = row.copy.call.p50 / us;
    add_optional(json, "kernels", timing->kernels);
  }
  if (!check.launches.is_null()) {
    json["launches"] = check.launches;
  }
  if (const std::optional<double> peer = peer_us(row); peer && result.timing) {
    json["speedup"] = *peer / result.timing->call.p50;
  }
  return json;
}

// Whether the variant takes this shape; the call that finds out is the warm-up.
bool warm_up(const Variant& variant) {
  try {
    variant.call(0);
    return true;
  } catch (const c10::Error& error) {
    if (is_refusal(error.what_without_backtrace())) {
      return false;
    }
    throw;
  }
}

}  // namespace

Row measure_row(const Case& c, const std::vector<std::string>& algorithms, c10::Device device,
                Timer& timer, const Timer::LargeCopy& large_copy) {
  const MatmulPrecision precision(c);
  Row row{.c = c, .bytes = c.op->bytes(c), .large_copy = large_copy, .copy = {}, .variants = {}};
  const int64_t sets = timer.sets_for(row.bytes.inputs);
  const std::vector<Variant> variants =
      c.op->variants(c, {.device = device, .sets = sets, .algorithms = algorithms});
  std::vector<Work> works;
  std::vector<size_t> timed;
  for (const Variant& variant : variants) {
    Checked checked =
        check(variant, [&](const std::function<void()>& call) { return timer.peak_bytes(call); });
    if (checked.status == Checked::Status::ok) {
      timed.push_back(row.variants.size());
      works.push_back({[&variant](int64_t i) { return variant.call(i).result; }, sets});
    }
    row.variants.push_back({variant.name, variant.kind, std::move(checked), std::nullopt});
  }
  std::ranges::move(timer.copies(row.bytes.least), std::back_inserter(works));
  const std::vector<Timing> timings = timer.time(works);
  row.copy = fastest(timings, timed.size());
  for (size_t i = 0; i < timed.size(); ++i) {
    add_timing(row.variants[timed[i]], timings[i]);
  }
  return row;
}

bool has_wrong_result(const Row& row) {
  return std::ranges::any_of(row.variants, [](const VariantResult& result) {
    return result.kind != Variant::Kind::aten && result.check.status == Checked::Status::wrong;
  });
}

Json to_json(const Row& row) {
  Json json = key_of(row.c);
  if (row.c.mask == Mask::padding) {
    json["key_lengths"] = key_lengths_of(row.c.shape);
  }
  json["least_bytes"] = row.bytes.least;
  json["fused_bytes"] = row.bytes.fused;
  json["unfused_bytes"] = row.bytes.unfused;
  json["floor_us"] = floor_us(row);
  add_times(json["same_size_copy"], row.copy);
  json["variants"] = Json::array();
  for (const VariantResult& result : row.variants) {
    json["variants"].push_back(to_json(result, row));
  }
  return json;
}

void profile_rows(const std::vector<Case>& cases, const std::string& variant,
                  const Algorithms& algorithms, c10::Device device, CudaRuntime& runtime) {
  bool known = false;
  for (const Case& c : cases) {
    const MatmulPrecision precision(c);
    const std::vector<Variant> variants =
        c.op->variants(c, {.device = device, .sets = 1, .algorithms = algorithms.of(c)});
    const auto found = std::ranges::find(variants, variant, &Variant::name);
    if (found == variants.end()) {
      continue;
    }
    known = true;
    if (!warm_up(*found)) {
      continue;
    }
    const auto graph = runtime.capture([&] { found->call(0); });
    runtime.synchronize();
    runtime.start_profiler();
    found->call(0);
    runtime.synchronize();
    runtime.stop_profiler();
    Json line = key_of(c);
    line["variant"] = variant;
    line["kernels"] = graph->kernels();
    print("{}\n", line.dump());
    flush_output();
    runtime.release_memory();
  }
  if (!known) {
    fail(ExitCode::usage, "--profile: expected a variant of these rows, got '{}'", variant);
  }
}

}  // namespace warpfuse::host::bench
