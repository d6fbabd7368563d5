#include "bench/row.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>

#include "bench/inputs.h"
#include "bench/launch_log.h"
#include "bench/matmul_precision.h"
#include "bench/reference.h"
#include "bench/traffic.h"
#include "bench/variants.h"
#include "runtime/errors.h"

namespace warpfuse::host::bench {
namespace {

constexpr const char* kNoMemory = "out of memory";

// A variant, its result and its row of JSON.
struct Candidate {
  Variant variant;
  Json json;
  bool right = false;
};

// Runs once before the checked call. It leaves NaN in the memory that the next outputs are likely
// to get, so that an element that is never written does not pass; and libraries allocate their
// workspaces, which then do not count as the call's.
void prepare(const Variant& variant, const InputSet& inputs) {
  if (variant.gives != Variant::Gives::overwritten) {
    variant.call(inputs).fill(std::numeric_limits<double>::quiet_NaN());
  }
}

void mark(Candidate& candidate, const char* status, const std::string& reason) {
  candidate.json["status"] = status;
  candidate.json["reason"] = reason;
}

// Sets the status, the error and, for the plugin's variants, the launches.
void check(Candidate& candidate, const Case& c, const InputSet& inputs, Timer& timer) {
  const Variant& variant = candidate.variant;
  const bool of_aten = variant.kind == Variant::Kind::aten;
  const bool overwrites = variant.gives == Variant::Gives::overwritten;
  candidate.json["name"] = variant.name;
  Json launches = Json::array();
  Outputs output{at::Tensor()};
  InputSet given = inputs;
  if (overwrites) {
    given.scores = inputs.scores.clone();
  }
  std::optional<int64_t> peak_bytes;
  try {
    prepare(variant, given);
    rewind_generators();
    const auto call = [&] { peak_bytes = timer.peak_bytes([&] { output = variant.call(given); }); };
    if (of_aten) {
      call();
    } else {
      launches = launches_during(call);
    }
  } catch (const c10::Error& error) {
    if (is_out_of_memory(std::current_exception())) {
      if (!of_aten) {
        throw;
      }
      mark(candidate, "unsupported", kNoMemory);
      return;
    }
    const std::string reason = one_line(error.what_without_backtrace());
    mark(candidate, of_aten || is_refusal(reason) ? "unsupported" : "wrong", reason);
    return;
  }
  if (variant.gives == Variant::Gives::negated) {
    output = output.result.neg();
  }
  const double error =
      variant.error ? variant.error(inputs, output) : error_of(c, inputs, output.result);
  const double tolerance = tolerance_of(c, of_aten);
  candidate.right = error <= tolerance;  // not for NaN
  if (candidate.right) {
    candidate.json["status"] = "ok";
  } else {
    mark(candidate, "wrong", fmt::format("error {:.2g} where {:.2g} is allowed", error, tolerance));
  }
  candidate.json["max_error"] = error;  // NaN becomes null
  if (peak_bytes) {
    candidate.json["extra_bytes"] = *peak_bytes - (overwrites ? 0 : output.bytes());
  }
  if (!of_aten) {
    candidate.json["launches"] = std::move(launches);
  }
}

void add_times(Json& json, const Percentiles& call) {
  json["p50_us"] = call.p50;
  json["p5_us"] = call.p5;
  json["p95_us"] = call.p95;
}

void add_optional(Json& json, const char* key, const std::optional<double>& value) {
  if (value) {
    json[key] = *value;
  }
}

// The times of a variant, before its launches.
void add_figures(Json& json, const Timing& timing, double least_bytes, double floor_us,
                 double copy_us) {
  Json launches = json.contains("launches") ? json["launches"] : Json();
  json.erase("launches");
  add_times(json, timing.call);
  add_optional(json, "event_p50_us", timing.event_p50);
  add_optional(json, "default_malloc_p50_us", timing.default_malloc_p50);
  json["gb_per_s"] = least_bytes / timing.call.p50 / 1e3;
  json["share"] = floor_us / timing.call.p50;
  json["copy_ratio"] = copy_us / timing.call.p50;
  if (timing.kernels) {
    json["kernels"] = *timing.kernels;
  }
  if (!launches.is_null()) {
    json["launches"] = std::move(launches);
  }
}

// The time of ATen's operator or chain divided by each variant's.
void add_speedups(std::vector<Candidate>& candidates) {
  const auto peer = std::ranges::find_if(candidates, [](const Candidate& candidate) {
    return candidate.variant.kind == Variant::Kind::aten && candidate.json.contains("p50_us");
  });
  if (peer == candidates.end()) {
    return;
  }
  const double peer_us = peer->json["p50_us"];
  for (Candidate& candidate : candidates) {
    if (candidate.json.contains("p50_us")) {
      candidate.json["speedup"] = peer_us / candidate.json["p50_us"].get<double>();
    }
  }
}

// The copy with the smallest median.
Percentiles fastest(const std::vector<Timing>& timings, size_t first) {
  Percentiles best;
  for (size_t i = first; i < timings.size(); ++i) {
    if (timings[i].failure.empty() && (best.p50 == 0 || timings[i].call.p50 < best.p50)) {
      best = timings[i].call;
    }
  }
  if (best.p50 == 0) {
    fail(ExitCode::device, "the copy beside the row cannot be timed: {}", timings[first].failure);
  }
  return best;
}

}  // namespace

Json measure_row(const Case& c, const std::vector<std::string>& algorithms, c10::Device device,
                 Timer& timer, const Timer::LargeCopy& copy) {
  const MatmulPrecision precision(c);
  const Traffic traffic = traffic_of(c);
  const std::vector<InputSet> inputs = make_inputs(c, device, timer.sets_for(input_bytes_of(c)));
  std::vector<Candidate> candidates;
  for (Variant& variant : variants_of(c, algorithms)) {
    candidates.push_back({std::move(variant), Json::object()});
    check(candidates.back(), c, inputs.front(), timer);
  }

  std::vector<Work> works;
  std::vector<Candidate*> timed;
  for (Candidate& candidate : candidates) {
    if (candidate.right) {
      timed.push_back(&candidate);
      works.push_back({[&inputs, call = candidate.variant.call](int64_t i) {
                         return call(inputs[static_cast<size_t>(i)]).result;
                       },
                       static_cast<int64_t>(inputs.size())});
    }
  }
  std::ranges::move(timer.copies(traffic.least), std::back_inserter(works));
  const std::vector<Timing> timings = timer.time(works);

  const Percentiles same_size = fastest(timings, timed.size());
  const auto least = static_cast<double>(traffic.least);
  const double floor_us = least / copy.bytes_per_us();
  for (size_t i = 0; i < timed.size(); ++i) {
    if (timings[i].failure.empty()) {
      add_figures(timed[i]->json, timings[i], least, floor_us, same_size.p50);
    } else {
      const bool fault_of_plugin = timed[i]->variant.kind != Variant::Kind::aten &&
                                   timings[i].failure.find(kNoMemory) == std::string::npos;
      mark(*timed[i], fault_of_plugin ? "wrong" : "unsupported", timings[i].failure);
    }
  }
  add_speedups(candidates);

  Json row = key_of(c);
  row["least_bytes"] = traffic.least;
  row["fused_bytes"] = traffic.fused;
  row["unfused_bytes"] = traffic.unfused;
  row["floor_us"] = floor_us;
  row["same_size_copy"] = Json::object();
  add_times(row["same_size_copy"], same_size);
  row["variants"] = Json::array();
  for (Candidate& candidate : candidates) {
    row["variants"].push_back(std::move(candidate.json));
  }
  return row;
}

bool has_wrong_result(const Json& row) {
  static constexpr std::array kPeers{"aten", "chain", "cross_entropy", "linear"};
  return std::ranges::any_of(row["variants"], [](const Json& variant) {
    return variant["status"] == "wrong" &&
           std::ranges::find(kPeers, variant["name"].get<std::string>()) == kPeers.end();
  });
}

}  // namespace warpfuse::host::bench
