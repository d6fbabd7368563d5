// A plugin for the tests of `warpfuse bench`: some results are wrong, some calls fail, some
// operators are missing, and its launches and tuning are made up, so that all of that can be seen
// on a machine without a GPU.

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>

namespace {

constexpr const char* kBuildInfo =
    R"({"version": "0", "schema_version": )" WARPFUSE_TEST_SCHEMA_VERSION
    R"(, "libtorch": ")" WARPFUSE_TEST_LIBTORCH
    R"(", "cuda": null, "architectures": [], "cpu_capabilities": [], "compiler": ""})";

std::string& tuning() {
  static std::string text = "the default table";
  return text;
}

bool recording = false;
int launches = 0;

at::Tensor right(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType>) {
  launches += recording ? 1 : 0;
  return at::softmax(self, dim);
}

at::Tensor off_by_a_little(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType>) {
  return at::log_softmax(self, dim) + 1e-3;
}

at::Tensor failing(const at::Tensor&, const at::Tensor&, int64_t) {
  TORCH_CHECK(false, "no gradient today");
}

// Every fifth element is dropped.
at::Tensor mask(const at::Tensor& like, double, const at::Tensor&) {
  return at::arange(like.numel()).remainder(5).ne(0).view(like.sizes());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> private_dropout(const at::Tensor& self, int64_t,
                                                               double, bool,
                                                               const std::optional<at::Tensor>&) {
  const at::Tensor rng = at::zeros({2}, at::kLong);
  return {self, rng, rng};
}

at::Tensor without_scale(const at::Tensor& self, int64_t dim, double, bool) {
  return at::softmax(self * mask(self, 0, self), dim);
}

at::Tensor algorithm(const at::Tensor& self, int64_t dim, c10::string_view name, bool) {
  TORCH_CHECK(name != "vector",
              "warpfuse::_softmax_algorithm: algorithm: expected rows of "
              "another kind, got \"",
              name, '"');
  return at::softmax(self, dim).mul(1.5);
}

std::string launch_log() {
  std::string log(1, '[');
  for (int i = 0; i < launches; ++i) {
    log.append(i > 0 ? "," : "")
        .append(R"({"tier": "block", "kernel": "registers", "grid": 1024, "threads": 512,
                    "cluster": 1, "lane_packs": 4, "registers": 48, "shared_bytes": 64,
                    "local_bytes": 0, "blocks_per_sm": 2, "warps_per_sm": 32,
                    "max_warps_per_sm": 64})");
  }
  return log.append(1, ']');
}

void record_launches(bool on) {
  recording = on;
  launches = on ? 0 : launches;
}

void set_tuning(c10::string_view text) {
  TORCH_CHECK(text.find("bad") == c10::string_view::npos, "line 1: expected a tier");
  tuning() = std::string(text);
}

}  // namespace

TORCH_LIBRARY(warpfuse, m) {
  m.def("build_info() -> str", [] { return std::string(kBuildInfo); });
  m.def("softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", right);
  m.def("log_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", off_by_a_little);
  m.def("_softmax_backward(Tensor grad_output, Tensor output, int dim) -> Tensor", failing);
  m.def("_softmax_algorithm(Tensor self, int dim, str algorithm, bool log=False) -> Tensor",
        algorithm);
  m.def("dropout_softmax(Tensor self, int dim, float dropout_p=0.5, bool training=True) -> Tensor",
        without_scale);
  m.def(
      "_dropout_softmax(Tensor self, int dim, float dropout_p, bool softmax_first, "
      "Tensor? rng=None) -> (Tensor output, Tensor statistics, Tensor rng)",
      private_dropout);
  m.def("_dropout_mask(Tensor like, float dropout_p, Tensor rng) -> Tensor", mask);
  m.def("tuning() -> str", [] { return tuning(); });
  m.def("_set_tuning(str text) -> ()", set_tuning);
  m.def("_record_launches(bool on) -> ()", record_launches);
  m.def("_launches() -> str", launch_log);
}
