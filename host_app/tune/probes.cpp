#include "tune/probes.h"

#include <tuple>

#include "bench/plan.h"

namespace warpfuse::host::tune {
namespace {

using bench::Case;
using bench::Mask;

constexpr int64_t kProbeBytes = int64_t{64} * 1024 * 1024;      // of a tensor
constexpr int64_t kMaxProbeBytes = int64_t{512} * 1024 * 1024;  // of one with long rows
constexpr int64_t kMaxQueries = 8192;
constexpr int64_t kManyRows = 1024;  // more run alike

// The function whose lines a row of the benchmark follows.
std::optional<Function> function_of(const Case& c) {
  const std::string_view name = c.op->name;
  if (name == "softmax") {
    return c.shape.dim < 0 ? Function::softmax : Function::columns;
  }
  if (name == "scaled_masked_softmax") {
    return c.mask == Mask::none                                  ? Function::softmax
           : c.mask == Mask::boolean || c.mask == Mask::additive ? Function::masks
                                                                 : Function::attention;
  }
  if (name == "dropout_softmax" && c.is_forward() && c.element_bytes() == 2) {
    return Function::dropout_first;
  }
  return name == "dropout_softmax" || name == "softmax_dropout" ||
                 name == "scaled_masked_softmax_dropout"
             ? std::optional(Function::dropout)
             : std::nullopt;
}

int64_t row_packs(const Case& c) { return c.shape.columns() * c.element_bytes() / 16; }

std::vector<PresetRow> rows_of(const std::string& presets) {
  std::vector<PresetRow> rows;
  for (const Case& c : bench::plan({.op = "all", .shapes = presets, .dtypes = {}, .masks = {}})) {
    if (const auto function = function_of(c)) {
      // Rows of less than a pack follow the lines for one.
      const int64_t length =
          *function == Function::columns ? c.shape.columns() : std::max<int64_t>(row_packs(c), 1);
      rows.push_back({{*function,
                       c.is_forward() ? Direction::forward : Direction::backward,
                       static_cast<int>(c.element_bytes()),
                       {length - 1, length},
                       {c.rows() - 1, c.rows()}},
                      c});
    }
  }
  return rows;
}

c10::ScalarType dtype_of(int element_bytes) {
  return element_bytes == 2 ? at::kBFloat16 : element_bytes == 4 ? at::kFloat : at::kDouble;
}

// Rows of one dtype and length in packs, aligned or not, one number, and one kind of mask.
bool run_alike(const Case& a, const Case& b) {
  const auto size = [](const Case& c) {
    return std::tuple(c.op, c.dtype, c.mask == Mask::positions ? Mask::padding : c.mask,
                      row_packs(c), is_aligned(c), std::min(c.rows(), kManyRows));
  };
  return size(a) == size(b);
}

const bench::Benchmark* benchmark_of(Function function) {
  using enum Function;
  return bench::find_benchmark(function == dropout         ? "softmax_dropout"
                               : function == dropout_first ? "dropout_softmax"
                               : function == attention || function == masks
                                   ? "scaled_masked_softmax"
                                   : "softmax");
}

// Rows of the class that are `bytes` long.
int64_t number_of_rows(const RowClass& c, int64_t bytes, int multiprocessors) {
  if (c.rows.up_to != kAny) {
    return std::clamp(kMaxProbeBytes / bytes, c.rows.above + 1, c.rows.up_to);
  }
  const int64_t some = 2 * int64_t{multiprocessors};
  const int64_t many =
      std::min(4 * some, kMaxProbeBytes / bytes);  // blocks that stay start up once
  return std::max({kProbeBytes / bytes, c.rows.above + 1, some, many});
}

// Of the class, whatever rows the presets have.
std::vector<Case> own_probes(const RowClass& c, int multiprocessors) {
  const int64_t pack = 16 / c.element_bytes;
  const int64_t longest = c.longest();
  std::vector<Case> probes;
  const auto add = [&](std::vector<int64_t> sizes, int64_t dim, Mask mask) {
    probes.push_back({.op = benchmark_of(c.function),
                      .direction = c.direction == Direction::forward ? bench::Direction::forward
                                                                     : bench::Direction::backward,
                      .shape = {.sizes = std::move(sizes), .dim = dim},
                      .dtype = dtype_of(c.element_bytes),
                      .mask = mask});
  };
  if (c.function == Function::columns) {
    for (const int64_t inner : {64, 77}) {  // the second is read element by element
      const int64_t rows = number_of_rows(c, longest * c.element_bytes, multiprocessors);
      add({std::max<int64_t>(rows / inner, 1), longest, inner}, 1, Mask::none);
    }
    return probes;
  }
  const int64_t rows = number_of_rows(c, longest * 16, multiprocessors);
  const int64_t keys = longest * pack;
  const int64_t fewest_keys = (c.packs.above + 1) * pack + 1;
  if (c.function == Function::attention) {
    if (c.rows.up_to == kAny && keys <= kMaxQueries) {
      for (const int64_t size : {keys, fewest_keys}) {
        add({std::max<int64_t>(rows / size, 1), size, size}, -1, Mask::causal);
      }
    } else {
      add({1, rows, keys}, -1, Mask::causal);
    }
    const int64_t queries = std::min(rows, keys);
    add({rows / queries, queries, keys}, -1, Mask::padding);
    return probes;
  }
  const int64_t odd_keys = longest - 1 > c.packs.above ? keys - 1 : keys + 1;
  for (const int64_t size : {keys, odd_keys, fewest_keys}) {
    if (c.function == Function::masks) {
      const int64_t queries = std::min(rows, size);
      add({rows / queries, queries, size}, -1, Mask::boolean);
    } else {
      add({rows, size}, -1, Mask::none);
    }
  }
  return probes;
}

}  // namespace

bool is_aligned(const Case& c) { return c.shape.sizes.back() * c.element_bytes() % 16 == 0; }

const std::array<std::vector<PresetRow>, 2>& preset_rows() {
  static const std::array rows{rows_of("table,odd"), rows_of("sweep,dropout")};
  return rows;
}

std::vector<ProbeRow> probes_of(const RowClass& c, int multiprocessors) {
  std::vector<ProbeRow> probes;
  const auto is_known = [&](const Case& row) {
    return std::ranges::any_of(probes,
                               [&](const ProbeRow& probe) { return run_alike(probe.row, row); });
  };
  for (const std::vector<PresetRow>& rows : preset_rows()) {
    for (const PresetRow& preset : rows) {
      if (covers(c, preset.c) && !is_known(preset.row)) {
        probes.push_back({preset.row, true});
      }
    }
  }
  std::vector<ProbeRow> own;
  for (const Case& row : own_probes(c, multiprocessors)) {
    if (!is_known(row)) {
      own.push_back({row, false});
    }
  }
  // A class's own are first: candidates that are slow on these are not timed on others.
  probes.insert(probes.begin(), own.begin(), own.end());
  return probes;
}

}  // namespace warpfuse::host::tune
