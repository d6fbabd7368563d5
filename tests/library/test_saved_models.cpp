// tests/saved_models: a TorchScript model per operator, written once. Each must load and run for
// ever; an operator without one fails.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>

#include "support/compare.h"
#include "support/devices.h"
#include "support/inputs.h"
#include "support/operators.h"
#include "support/pch.h"

namespace {

std::string model_path(const std::string& name) {
  return c10::str(WARPFUSE_TESTS_DIR "/saved_models/", name, ".pt");
}

std::vector<std::string> registered_operators() {
  std::vector<std::string> names;
  const std::string prefix = "warpfuse::";
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.starts_with(prefix)) {
      names.push_back(name.name.substr(prefix.size()));
    }
  }
  return names;
}

bool calls(const torch::jit::Module& module, const std::string& name) {
  const auto graph = module.get_method("forward").graph();
  for (const torch::jit::Node* node : graph->nodes()) {
    if (node->kind().toQualString() == c10::str("warpfuse::", name)) {
      return true;
    }
  }
  return false;
}

void check_result(const c10::IValue& result, const torch::jit::Module& module) {
  if (!module.hasattr("expected")) {
    CHECK((result.isString() || result.isInt()));
    return;
  }
  const at::Tensor& output = result.toTensor();
  CHECK(output.device() == module.attr("expected").toTensor().device());
  CHECK(far_apart(output, module.attr("expected").toTensor(), 1e-6) == "");
}

}  // namespace

WARPFUSE_DEVICE_TEST("every operator's saved model loads and gives what it gave", "[models]") {
  for (const std::string& name : registered_operators()) {
    INFO(name);
    if (!std::filesystem::exists(model_path(name))) {
      FAIL_CHECK("no tests/saved_models/" << name << ".pt: run tests/saved_models/make.py");
      continue;
    }
    torch::jit::Module module = torch::jit::load(model_path(name), device);
    module.eval();
    CHECK(calls(module, name));
    for (int run = 0; run < 3; ++run) {
      check_result(module.forward({}), module);
    }
    check_result(torch::jit::freeze(module).forward({}), module);
  }
}

TEST_CASE("every saved model belongs to an operator that is still there", "[models]") {
  const auto names = registered_operators();
  int models = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(WARPFUSE_TESTS_DIR "/saved_models")) {
    if (entry.path().extension() == ".pt") {
      ++models;
      INFO(entry.path());
      CHECK(std::ranges::find(names, entry.path().stem().string()) != names.end());
    }
  }
  CHECK(models == static_cast<int>(names.size()));
}
