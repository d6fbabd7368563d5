#include "bench/table.h"

namespace warpfuse::host::bench {
namespace {

// A number in so many digits, or a dash where there is none.
std::string number(const Json& object, const char* key, int digits) {
  return object.contains(key) && object[key].is_number()
             ? fmt::format("{:.{}f}", object[key].get<double>(), digits)
             : "-";
}

// Beside times of which most samples were taken while the clock was down.
const char* mark(const Json& object) { return object.contains("throttled") ? "  throttled" : ""; }

std::string row_label(const Json& row) {
  return fmt::format("{:<30}{:<9}{:<15} {:<9}{:<10}", row["operator"].get<std::string>(),
                     row["direction"].get<std::string>(), shape_in(row).text(),
                     row["dtype"].get<std::string>(), row["mask"].get<std::string>());
}

}  // namespace

void print_head(const Json& document) {
  const Json& copy = document["large_copy"];
  print("{}: a copy of {:.2f} GB moves {:.0f} GB/s", document["device"]["name"].get<std::string>(),
        copy["bytes"].get<double>() / 2e9, copy["gb_per_s"].get<double>());
  if (document.contains("empty_kernel_us")) {
    print(", an empty kernel takes {:.2f} us", document["empty_kernel_us"].get<double>());
  }
  const bool cuda = document["device"]["type"] == "cuda";
  print("\n{:<30}{:<9}{:<16}{:<9}{:<10}{:<14}{:>10}{:>10}{:>10}{:>11}{:>8}{:>7}{:>7}{:>8}\n",
        "operator", "", "shape", "dtype", "mask", "variant", "p50 us", "p5", "p95",
        cuda ? "event us" : "malloc us", "GB/s", "share", "copy", "speedup");
  flush_output();
}

void print_row(const Json& row) {
  const std::string label = row_label(row);
  const Json& copy = row["same_size_copy"];
  print("{}{:<14}{:>10}{:>10}{:>10}{}\n", label, "copy", number(copy, "p50_us", 2),
        number(copy, "p5_us", 2), number(copy, "p95_us", 2), mark(copy));
  for (const Json& variant : row["variants"]) {
    print("{}{:<14}", label, variant["name"].get<std::string>());
    if (variant["status"] != "ok") {
      print("  {}: {}\n", variant["status"].get<std::string>(),
            variant.value("reason", std::string()));
      continue;
    }
    const char* beside =
        variant.contains("event_p50_us") ? "event_p50_us" : "default_malloc_p50_us";
    print("{:>10}{:>10}{:>10}{:>11}{:>8}{:>7}{:>7}{:>8}{}\n", number(variant, "p50_us", 2),
          number(variant, "p5_us", 2), number(variant, "p95_us", 2), number(variant, beside, 2),
          number(variant, "gb_per_s", 0), number(variant, "share", 3),
          number(variant, "copy_ratio", 3), number(variant, "speedup", 2), mark(variant));
  }
  flush_output();
}

void print_launches(const Json& rows) {
  bool first = true;
  for (const Json& row : rows) {
    for (const Json& variant : row["variants"]) {
      for (const Json& launch : variant.value("launches", Json::array())) {
        if (first) {
          print(
              "\n{:<30}{:<9}{:<16}{:<9}{:<10}{:<14}{:<18}{:>9}{:>8}{:>8}{:>6}{:>9}{:>7}{:>8}{:>11}"
              "\n",
              "launches", "", "", "", "", "variant", "kernel", "grid", "threads", "cluster", "regs",
              "shared", "local", "blocks", "warps");
          first = false;
        }
        print("{}{:<14}{:<18}{:>9}{:>8}{:>8}{:>6}{:>9}{:>7}{:>8}{:>11}\n", row_label(row),
              variant["name"].get<std::string>(),
              fmt::format("{}/{}", launch.value("tier", "?"), launch.value("kernel", "?")),
              number(launch, "grid", 0), number(launch, "threads", 0), number(launch, "cluster", 0),
              number(launch, "registers", 0), number(launch, "shared_bytes", 0),
              number(launch, "local_bytes", 0), number(launch, "blocks_per_sm", 0),
              fmt::format("{} of {}", number(launch, "warps_per_sm", 0),
                          number(launch, "max_warps_per_sm", 0)));
      }
    }
  }
}

void print_generation(const Json& row) {
  const auto number = [](const Json& value) { return value.is_null() ? 0.0 : value.get<double>(); };
  print(
      "{:<14} {:<9} {:<8} {:<8} batch {:>3}, prompt {:>4}: {:>9.1f} tokens/s, {:>8.1f} us/step "
      "(p95 {:.1f}), "
      "first token {:>7.2f} ms, host {:>5.1f} us, {} kernels, floor {:.1f} us, softmax {:.0f} %\n",
      row["model"].get<std::string>(), row["variant"].get<std::string>(),
      row["dtype"].get<std::string>(), row["graph"].get<bool>() ? "graph" : "no graph",
      row["batch"].get<int64_t>(), row["prompt"].get<int64_t>(),
      row["tokens_per_s"]["p50"].get<double>(), row["latency_us"]["p50"].get<double>(),
      row["latency_us"]["p95"].get<double>(), row["ttft_ms"]["p50"].get<double>(),
      row["host_us_per_token"].get<double>(), number(row["kernels_per_token"]),
      row["floor_us"].get<double>(), 100 * number(row["softmax_kernels_share"]));
  flush_output();
}

void print_prefill(const Json& row) {
  print("{:<14} {:<9} {:<8} prefill {} x {}: {:.3f} ms\n", row["model"].get<std::string>(),
        row["variant"].get<std::string>(), row["dtype"].get<std::string>(),
        row["batch"].get<int64_t>(), row["prompt"].get<int64_t>(), row["ms"]["p50"].get<double>());
  flush_output();
}

}  // namespace warpfuse::host::bench
