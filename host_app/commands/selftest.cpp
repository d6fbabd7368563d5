#include <ATen/ATen.h>

#include <iterator>

#include "bench/check.h"
#include "bench/plan.h"
#include "commands/commands.h"
#include "commands/selftest_public.h"
#include "runtime/load/session.h"
#include "runtime/output.h"
#include "runtime/parse.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

constexpr Option kSelftestOptions[] = {
    {"device", "D", "cpu, cuda or cuda:N (default: the CPU, and the GPU where there is one)"},
    {"operators", "NAMES", "only these, separated by commas"},
    kThreadsOption,
};

// --- values -------------------------------------------------------------------------------------

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What the scores, or logits, are filled with.
struct Fill {
  const char* name;
  void (*fill)(const at::Tensor&);
  double tolerance = 1;  // times that of the benchmark's inputs
};

void fill_normally(const at::Tensor& tensor) { tensor.normal_(); }

// Scores that leave the range of the exponential behind.
void fill_widely(const at::Tensor& tensor) { tensor.normal_().mul_(200); }

// Runs of a row's length in turn hold infinities, NaN, the largest and the smallest numbers, equal
// scores and nothing but -inf; where the softmax runs over another dimension they cross it.
void fill_with_edges(const at::Tensor& tensor) {
  const bool half = tensor.scalar_type() == at::kHalf;
  const double largest = half ? 65504 : 3e38, smallest = half ? 6e-8 : 1e-38;
  const struct {
    bool throughout;  // else in one element
    double value;
  } edges[] = {{false, kInfinity}, {false, -kInfinity}, {false, kNan},    {true, -kInfinity},
               {false, largest},   {true, -largest},    {true, smallest}, {true, 1.5}};
  tensor.normal_();
  const at::Tensor rows = tensor.view({-1, tensor.size(-1)});
  for (int64_t i = 0; i < rows.size(0); i += std::max<int64_t>(1, rows.size(0) / 64)) {
    const auto& [throughout, value] = edges[i % 8];
    const at::Tensor row = rows[i];
    (throughout ? row : row[i % row.size(0)]).fill_(value);
  }
}

// Infinities and NaN in some rows, for operators that add up what a row holds.
void fill_with_infinities(const at::Tensor& tensor) {
  const double special[] = {kInfinity, kNan, -kInfinity};
  tensor.normal_();
  const at::Tensor rows = tensor.view({-1, tensor.size(-1)});
  for (int64_t i = 1; i < rows.size(0); i += 2) {
    rows[i][i % rows.size(1)].fill_(special[i / 2 % 3]);
  }
}

constexpr Fill kOrdinary[] = {{"normal", fill_normally}};
constexpr Fill kLinear[] = {
    {"normal", fill_normally}, {"wide", fill_widely}, {"infinities", fill_with_infinities}};
// The largest scores and a mask's numbers are added in float32.
constexpr Fill kAll[] = {
    {"normal", fill_normally}, {"wide", fill_widely}, {"edges", fill_with_edges, 2}};

// ATen's steps for an entropy give NaN where a probability is zero beside an infinite logarithm.
constexpr Fill kFinite[] = {{"normal", fill_normally}, {"wide", fill_widely}};

// Rows of the benchmark, each in every dtype and direction. Their lengths lie on both sides of what
// chooses a kernel: vectors, warps, blocks, clusters, rows in parts; odd ones start unaligned.
struct Rows {
  const char* operators;
  const char* shapes;
  const char* masks;
  std::span<const Fill> fills;
  const char* dtypes = "float32,float16,bfloat16,float64";
};
constexpr const char* kWithoutFloat64 = "float32,float16,bfloat16";
constexpr Rows kRows[] = {
    {"softmax,log_softmax",
     "1x1,3x2,65x33,64x64,17x255,16x1024,9x1025,5x4097,4x8192,3x32769,2x50257,1x140001,"
     "5x33x7@1,2x1025x65@1",
     nullptr, kAll},
    {"scaled_masked_softmax", "2x3x1x7,2x2x5x33,1x3x64x64,2x2x17x129,1x2x9x1025,1x1x3x5000",
     "none,causal,padding,boolean,additive,positions", kAll},
    {"scaled_masked_softmax_dropout", "2x3x1x7,2x2x5x33,2x2x17x129,1x2x9x1025",
     "none,causal,padding,boolean,additive,positions", kOrdinary},
    {"fused_logprob,fused_logprob_lse", "1x2,7x33,33x1000,5x50257,1x131075", nullptr, kAll},
    {"fused_logprob_entropy", "1x2,7x33,33x1000,5x50257,1x131075", nullptr, kFinite},
    {"dropout_softmax,softmax_dropout", "3x2,65x33,16x1024,5x4097,2x50257,5x33x7@1", nullptr,
     kOrdinary},
    {"linear_dropout_softmax", "1x8x16,5x64x1000,33x128x256", nullptr, kOrdinary},
    {"ms_deform_attn,ms_deform_attn_uniform",
     "2x5x3x7x2/6x4/3x5,1x33x4x64x3/9x17,2x187x8x32x4/11x13/5x7/3x3", nullptr, kOrdinary},
    // Both sides of 16 rows, where other kernels begin, and of 64; few outputs and many.
    {"norm_linear,norm_linear_gelu,linear_residual,linear_argmax",
     "1x8x16,3x33x65,5x64x1000,8x768x2304,16x129x96,17x64x40,1x3072x768,40x3072x768,70x64x9001",
     nullptr, kLinear, kWithoutFloat64},
    {"cached_attention_softmax",
     "1x1x1x1x8,2x3x1x129x64,3x2x5x33x16,1x2x65x65x24,2x2x7x1025x64,2x1x40x300x128",
     "none,positions", kOrdinary, kWithoutFloat64},
};

// --- the command --------------------------------------------------------------------------------

// Counts checks and prints a line per failure.
class Tally {
 public:
  explicit Tally(const StatusLine& line) : line_(line) {}

  void add(bool right, const std::string& what, const std::string& reason) {
    ++checks_;
    if (!right) {
      ++failures_;
      line_.clear();
      print("FAIL {}: {}\n", what, reason);
      flush_output();
    }
  }
  int64_t checks() const { return checks_; }
  int64_t failures() const { return failures_; }

 private:
  const StatusLine& line_;
  int64_t checks_ = 0;
  int64_t failures_ = 0;
};

// The operators that were asked for.
class Selection {
 public:
  explicit Selection(const std::optional<std::string>& names) {
    if (names) {
      names_ = split_list(*names);
    }
    for (const std::string& name : names_) {
      const bool has_rows = std::ranges::any_of(kRows, [&](const Rows& rows) {
        return std::ranges::count(split_list(rows.operators), name) > 0;
      });
      if (name != kSampling && !has_rows &&
          std::ranges::find(gradients(), name, &Gradient::name) == gradients().end()) {
        fail(ExitCode::usage,
             "--operators: expected public operators of the plugin, except gpt2_step, got '{}'",
             name);
      }
    }
  }
  bool has(std::string_view name) const {
    return names_.empty() || std::ranges::find(names_, name) != names_.end();
  }
  static constexpr const char* kSampling = "sample_tokens";

 private:
  std::vector<std::string> names_;
};

// The rows that were asked for, with what they are filled with.
std::vector<std::pair<bench::Case, std::span<const Fill>>> cases_of(const Selection& selection) {
  std::vector<std::pair<bench::Case, std::span<const Fill>>> cases;
  for (const Rows& rows : kRows) {
    for (const std::string& name : split_list(rows.operators)) {
      bench::Request request{.op = name, .shapes = rows.shapes, .dtypes = rows.dtypes, .masks = {}};
      request.backward = true;
      if (rows.masks != nullptr) {
        request.masks = rows.masks;
      }
      if (selection.has(name)) {
        for (const bench::Case& c : bench::plan(request)) {
          cases.emplace_back(c, rows.fills);
        }
      }
    }
  }
  return cases;
}

void check_row(const bench::Case& c, const Fill& fill, c10::Device device, Tally& tally) {
  for (bench::Variant& variant :
       c.op->variants(c, bench::Setup{.device = device, .scores = fill.fill})) {
    variant.tolerance *= fill.tolerance;
    if (variant.kind != bench::Variant::Kind::aten) {
      const bench::Checked checked = bench::check(variant, [](const auto& call) {
        call();
        return std::optional<int64_t>();
      });
      tally.add(
          checked.status != bench::Checked::Status::wrong,
          fmt::format("{} {} {} {}", device.str(), bench::text_of(c), variant.name, fill.name),
          checked.reason);
    }
  }
}

void check_gradient(const Gradient& gradient, c10::Device device, Tally& tally) {
  constexpr double kTolerance = 1e-12;
  const double error = gradient_error(gradient, device);
  tally.add(error <= kTolerance, fmt::format("{} {} through autograd", device.str(), gradient.name),
            fmt::format("error {:.2g} where {:.2g} is allowed", error, kTolerance));
}

void check_sampling(c10::Device device, Tally& tally) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    const int64_t wrong = wrong_tokens(dtype, device);
    tally.add(wrong == 0, fmt::format("{} sample_tokens {}", device.str(), c10::toString(dtype)),
              fmt::format("{} of 130 tokens are wrong", wrong));
  }
}

ExitCode run_selftest(const Arguments& arguments) {
  const Selection selection(arguments.optional_text("operators"));
  const auto cases = cases_of(selection);
  std::vector<bench::Case> rows;
  std::ranges::transform(cases, std::back_inserter(rows),
                         [](const auto& found) { return found.first; });
  std::vector<std::string> operators = bench::operators_of(rows);
  operators.emplace_back("warpfuse::build_info");
  choose_threads(arguments.threads(), /*watched=*/false);
  const std::string asked = arguments.optional_text("device").value_or("auto");
  const Session session = open_session(arguments.plugin_options(), asked, {}, operators);
  std::vector<c10::Device> devices{session.device};
  if (asked == "auto") {
    if (session.device.is_cuda()) {
      devices.insert(devices.begin(), c10::Device(c10::kCPU));
    } else {
      print("no GPU that the plugin has code for: the CPU alone is tested\n");
    }
  }
  const InterruptGuard guard;
  const StatusLine line;
  int64_t failures = 0;
  for (const c10::Device device : devices) {
    const auto start = std::chrono::steady_clock::now();
    Tally tally(line);
    for (const auto& [c, fills] : cases) {
      line.show(fmt::format("{} {}", device.str(), bench::text_of(c)));
      for (const Fill& fill : fills) {
        if (interrupted()) {
          fail(ExitCode::interrupted, "interrupted");
        }
        check_row(c, fill, device, tally);
      }
    }
    for (const Gradient& gradient : gradients()) {
      if (selection.has(gradient.name)) {
        check_gradient(gradient, device, tally);
      }
    }
    if (selection.has(Selection::kSampling)) {
      check_sampling(device, tally);
    }
    line.clear();
    print("{}: {} checks, {} failed, {:.0f} s\n", device.str(), tally.checks(), tally.failures(),
          seconds_since(start));
    failures += tally.failures();
  }
  return failures == 0 ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Command selftest_command() {
  return {.name = "selftest",
          .summary = "compare the operators with this libtorch's, after an upgrade",
          .help =
              "Compares the plugin's operators, except gpt2_step, with the ATen of this "
              "libtorch: values,\n"
              "masks, edges and gradients in every dtype, on the CPU and on the GPU. For use after "
              "an\n"
              "upgrade of libtorch, the driver or the GPU; it takes about a minute. Exit code 0: "
              "all are\n"
              "right; 1: a line for each that is not.\n",
          .examples =
              "  warpfuse selftest\n"
              "  warpfuse selftest --device cpu --plugin /opt/warpfuse/lib/libwarpfuse.so\n"
              "  warpfuse selftest --operators softmax,fused_logprob\n",
          .options = {{kSelftestOptions}, {kPluginOptions}, {kTuningOption}},
          .run = run_selftest};
}

}  // namespace warpfuse::host
