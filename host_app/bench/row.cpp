#include "bench/row.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "bench/suites/attention_inputs.h"
#include "runtime/decode/cuda_runtime.h"
#include "runtime/errors.h"
#include "runtime/output.h"

namespace warpfuse::host::bench {
namespace {

// While one lives, matrix products of float32 may use TF32 if the row is one in tf32; in other rows
// libtorch's setting stays as it is.
class MatmulPrecision {
 public:
  explicit MatmulPrecision(const Case& c) : tf32_(c.tf32) {
    if (tf32_) {
      before_ = at::globalContext().allowTF32CuBLAS();
      at::globalContext().setAllowTF32CuBLAS(true);
    }
  }
  ~MatmulPrecision() {
    if (tf32_) {
      at::globalContext().setAllowTF32CuBLAS(before_);
    }
  }
  MatmulPrecision(const MatmulPrecision&) = delete;
  MatmulPrecision& operator=(const MatmulPrecision&) = delete;

 private:
  bool tf32_;
  bool before_ = false;
};

constexpr const char* kStatusNames[] = {"ok", "wrong", "unsupported"};

// The copy with the smallest median.
Timing fastest(const std::vector<Timing>& timings, size_t first) {
  const auto copies = std::span(timings).subspan(first);
  const auto best = std::ranges::min_element(copies, {}, [](const Timing& timing) {
    return std::pair(!timing.failure.empty(), timing.call.p50);
  });
  if (!best->failure.empty()) {
    fail(ExitCode::device, "the copy beside the row cannot be timed: {}", copies[0].failure);
  }
  return *best;
}

// A variant as it was checked, and its times where it is right.
struct Result {
  Variant::Kind kind;
  Checked check;
  std::optional<Timing> timing = {};
};

void set_timing(Result& result, const Timing& timing) {
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

Json to_json(const std::string& name, const Result& result, int64_t least_bytes, double floor_us,
             double copy_us, std::optional<double> peer_us) {
  const Checked& check = result.check;
  Json json{{"name", name}, {"status", kStatusNames[static_cast<size_t>(check.status)]}};
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
    json["gb_per_s"] = static_cast<double>(least_bytes) / us / 1e3;
    json["share"] = floor_us / us;
    json["copy_ratio"] = copy_us / us;
    add_optional(json, "kernels", timing->kernels);
  }
  if (!check.launches.is_null()) {
    json["launches"] = check.launches;
  }
  if (peer_us && result.timing) {
    json["speedup"] = *peer_us / result.timing->call.p50;
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
  const Bytes bytes = c.op->bytes(c);
  const int64_t sets = timer.sets_for(bytes.inputs);
  const std::vector<Variant> variants =
      c.op->variants(c, {.device = device, .sets = sets, .algorithms = algorithms});
  std::vector<Result> results;
  std::vector<Work> works;
  std::vector<size_t> timed;
  for (const Variant& variant : variants) {
    results.push_back({variant.kind, check(variant, [&](const std::function<void()>& call) {
                         return timer.peak_bytes(call);
                       })});
    if (results.back().check.status == Checked::Status::ok) {
      timed.push_back(results.size() - 1);
      works.push_back({[&variant](int64_t i) { return variant.call(i).result; }, sets});
    }
  }
  std::ranges::move(timer.copies(bytes.least), std::back_inserter(works));
  const std::vector<Timing> timings = timer.time(works);
  const Timing copy = fastest(timings, timed.size());
  for (size_t i = 0; i < timed.size(); ++i) {
    set_timing(results[timed[i]], timings[i]);
  }
  std::optional<double> peer_us;  // of ATen's operator or chain, the first that has times
  for (const Result& result : results) {
    if (!peer_us && result.kind == Variant::Kind::aten && result.timing) {
      peer_us = result.timing->call.p50;
    }
  }
  const double floor_us = static_cast<double>(bytes.least) / large_copy.bytes_per_us();
  Row row{key_of(c)};
  if (c.mask == Mask::padding) {
    row.json["key_lengths"] = key_lengths_of(c.shape);
  }
  row.json["least_bytes"] = bytes.least;
  row.json["fused_bytes"] = bytes.fused;
  row.json["unfused_bytes"] = bytes.unfused;
  row.json["floor_us"] = floor_us;
  add_times(row.json["same_size_copy"], copy);
  row.json["variants"] = Json::array();
  for (size_t i = 0; i < variants.size(); ++i) {
    const Result& result = results[i];
    row.json["variants"].push_back(
        to_json(variants[i].name, result, bytes.least, floor_us, copy.call.p50, peer_us));
    row.wrong = row.wrong || (result.kind != Variant::Kind::aten &&
                              result.check.status == Checked::Status::wrong);
  }
  return row;
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
