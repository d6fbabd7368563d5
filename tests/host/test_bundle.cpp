#include <nlohmann/json.hpp>
#include <string>

#include "failure_of.h"
#include "runtime/load/bundle.h"
#include "support/catch.h"
#include "temporary_folder.h"

using nlohmann::json;
using namespace warpfuse::host;

namespace {

json language_model() {
  return {{"format", 2},
          {"kind", "causal_lm"},
          {"model", "toy"},
          {"variant", "fused"},
          {"layers", 2},
          {"context", 64},
          {"heads", 4},
          {"head_dim", 8},
          {"dtype", "float16"},
          {"vocab_size", 300},
          {"schema_version", 1},
          {"operators", {"warpfuse::softmax"}},
          {"sha256", {{"model.pt", "00ff"}}}};
}

json module() {
  json description = language_model();
  description["kind"] = "module";
  description["inputs"] = {
      {{"name", "x"}, {"shape", {2, 3}}, {"dtype", "float32"}, {"std", 0.5}},
      {{"name", "i"}, {"shape", {2}}, {"dtype", "int64"}, {"low", -1}, {"high", 4}}};
  return description;
}

Bundle read(const std::string& text) {
  TemporaryFolder folder;
  folder.write("bundle.json", text);
  return read_bundle(folder.path());
}

// The failure without the folder's path.
std::string failure(const std::string& text) {
  std::string message = failure_of([&] { read(text); });
  const size_t file = message.find("bundle.json");
  return file == std::string::npos ? message : message.substr(file);
}

std::string failure_with(json description, const std::string& field, const json& value) {
  description[field] = value;
  return failure(description.dump());
}

}  // namespace

TEST_CASE("a language model's description", "[bundle]") {
  const Bundle bundle = read(language_model().dump());
  CHECK(bundle.variant == "fused");
  CHECK(bundle.dtype == at::kHalf);
  CHECK(bundle.operators == std::vector<std::string>{"warpfuse::softmax"});
  CHECK(bundle.model_sha256 == "00ff");
  REQUIRE(bundle.language_model.has_value());
  CHECK(bundle.language_model->context == 64);
  CHECK(bundle.language_model->vocab_size == 300);
  CHECK(bundle.model_file().filename() == "model.pt");
}

TEST_CASE("a module's description", "[bundle]") {
  const Bundle bundle = read(module().dump());
  CHECK_FALSE(bundle.language_model.has_value());
  REQUIRE(bundle.inputs.size() == 2);
  CHECK(bundle.inputs[0].shape == std::vector<int64_t>{2, 3});
  CHECK(bundle.inputs[0].standard_deviation == 0.5);
  CHECK(bundle.inputs[1].low == -1);
  CHECK(bundle.inputs[1].high == 4);
}

TEST_CASE("every complaint names the field", "[bundle]") {
  CHECK(failure("{") == "bundle.json: expected a JSON object");
  CHECK(failure("[]") == "bundle.json: expected a JSON object");
  CHECK(failure_with(language_model(), "format", 1) ==
        "bundle.json: field 'format': expected 2, got 1");
  CHECK(failure_with(language_model(), "kind", "image") ==
        "bundle.json: field 'kind': expected 'causal_lm' or 'module', got \"image\"");
  CHECK(failure_with(language_model(), "dtype", "float8") ==
        "bundle.json: field 'dtype': expected float32, float16, bfloat16, float64, int64, int32 or "
        "bool, got \"float8\"");
  CHECK(failure_with(language_model(), "layers", 0) ==
        "bundle.json: field 'layers': expected an integer of 1..2147483648, got 0");
  CHECK(failure_with(language_model(), "heads", "4") ==
        "bundle.json: field 'heads': expected an integer of 1..2147483648, got \"4\"");
  CHECK(failure_with(language_model(), "model", 5) ==
        "bundle.json: field 'model': expected a string, got 5");
  CHECK(failure_with(language_model(), "operators", {"softmax"}) ==
        "bundle.json: field 'operators': expected an array of 'namespace::name' strings, got "
        "[\"softmax\"]");
  CHECK(failure_with(language_model(), "sha256", "00") ==
        "bundle.json: field 'sha256': expected an object, got \"00\"");
  CHECK(failure_with(language_model(), "sha256", json::object()) ==
        "bundle.json: sha256: field 'model.pt' is missing");
  const json whole = language_model();
  for (const auto& [field, value] : whole.items()) {
    json description = whole;
    description.erase(field);
    CHECK(failure(description.dump()) == "bundle.json: field '" + field + "' is missing");
  }
}

TEST_CASE("complaints about a module's inputs name which", "[bundle]") {
  json description = module();
  description["inputs"][1]["high"] = -1;
  CHECK(failure(description.dump()) ==
        "bundle.json: inputs[1]: field 'high': expected an integer of 0..2147483648, got -1");
  description = module();
  description["inputs"][0]["shape"] = {2, -3};
  CHECK(failure(description.dump()) ==
        "bundle.json: inputs[0]: field 'shape': expected an array of sizes, got [2,-3]");
}
