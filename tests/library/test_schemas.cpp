// The registered schemas against tests/schemas.golden: saved models embed positional calls, so a
// schema is a promise.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <fstream>
#include <map>

#include "support/operators.h"
#include "support/pch.h"

namespace {

std::map<std::string, c10::FunctionSchema> registered_schemas() {
  std::map<std::string, c10::FunctionSchema> schemas;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("warpfuse::", 0) == 0) {
      schemas.emplace(
          c10::toString(name),
          dispatcher.findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str()).schema());
    }
  }
  return schemas;
}

std::map<std::string, c10::FunctionSchema> golden_schemas() {
  std::map<std::string, c10::FunctionSchema> schemas;
  std::ifstream file(WARPFUSE_TESTS_DIR "/schemas.golden");
  REQUIRE(file.good());
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') {
      const c10::FunctionSchema schema = torch::jit::parseSchema(line);
      schemas.emplace(c10::toString(schema.operator_name()), schema);
    }
  }
  return schemas;
}

/// How `now` breaks calls that were saved under `then`; empty when it does not.
std::string incompatibility(const c10::FunctionSchema& then, const c10::FunctionSchema& now) {
  if (now.returns() != then.returns()) {
    return "its returns changed";
  }
  for (size_t i = 0; i < then.arguments().size(); ++i) {
    if (i >= now.arguments().size() || !(now.arguments()[i] == then.arguments()[i])) {
      return "argument " + std::to_string(i) + " (" + then.arguments()[i].name() + ") changed";
    }
  }
  for (size_t i = then.arguments().size(); i < now.arguments().size(); ++i) {
    if (!now.arguments()[i].default_value().has_value()) {
      return "the new argument " + now.arguments()[i].name() + " has no default";
    }
  }
  return "";
}

}  // namespace

TEST_CASE("the schemas are those of tests/schemas.golden", "[schemas]") {
  const auto golden = golden_schemas();
  const auto registered = registered_schemas();
  CHECK(golden.size() >= 12);
  for (const auto& [name, then] : golden) {
    INFO(name);
    const auto now = registered.find(name);
    if (now == registered.end()) {
      FAIL_CHECK(
          "promised in tests/schemas.golden, but no longer there: saved models that call it "
          "will not load");
      continue;
    }
    INFO("was " << then);
    INFO("is  " << now->second);
    const std::string broken = incompatibility(then, now->second);
    if (!broken.empty()) {
      FAIL_CHECK(broken << ": saved models that call it would break. Give the new form another "
                           "name, or append arguments with defaults");
    } else if (!(then == now->second)) {
      FAIL_CHECK(
          "arguments were appended. If that is meant, put the new line into "
          "tests/schemas.golden");
    }
  }
  for (const auto& [name, now] : registered) {
    if (!golden.count(name)) {
      FAIL_CHECK(
          "a new operator: promise it with this line in tests/schemas.golden, and a model "
          "in tests/saved_models:\n"
          << now);
    }
  }
}

TEST_CASE("the comparison of schemas sees what breaks saved models", "[schemas]") {
  const auto verdict = [](const std::string& then, const std::string& now) {
    return incompatibility(torch::jit::parseSchema(then), torch::jit::parseSchema(now));
  };
  const std::string old = "warpfuse::f(Tensor x, int dim=1) -> Tensor";
  CHECK(verdict(old, old) == "");
  CHECK(verdict(old, "warpfuse::f(Tensor x, int dim=1, bool log=False) -> Tensor") == "");
  CHECK(verdict(old, "warpfuse::f(Tensor x, int dim=1, *, bool log) -> Tensor") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor x, int dim=2) -> Tensor") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor x, int axis=1) -> Tensor") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor x, bool log=False, int dim=1) -> Tensor") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor? x, int dim=1) -> Tensor") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor x) -> Tensor") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor x, int dim=1) -> (Tensor, Tensor)") != "");
  CHECK(verdict(old, "warpfuse::f(Tensor(a!) x, int dim=1) -> Tensor") != "");
}

TEST_CASE("operators write their first input as their names say, a cache, or none", "[schemas]") {
  for (const auto& [name, schema] : registered_schemas()) {
    INFO(name);
    const bool in_place = schema.name().back() == '_';
    for (const c10::Argument& argument : schema.arguments()) {
      const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      CHECK(written ==
            ((in_place && &argument == &schema.arguments().front()) || argument.name() == "cache"));
      CHECK((written || argument.alias_info() == nullptr));
    }
    for (const c10::Argument& result : schema.returns()) {
      CHECK(result.alias_info() == nullptr);
    }
  }
}
