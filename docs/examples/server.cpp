// server MODEL.pt PLUGIN PORT [DEVICE]: runs a traced model at POST /predict, see README.md.
#include <ATen/Parallel.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <httplib.h>
#include <torch/script.h>

#include <nlohmann/json.hpp>
using nlohmann::json;

at::Tensor tensor_of(const json& input) {
  const auto integers = [&](const char* name) {
    const auto numbers = input.at(name).get<std::vector<int64_t>>();
    TORCH_CHECK(json(numbers) == input.at(name), name, ": not integers");
    return numbers;
  };
  const bool real = input.at("dtype") == "float32";
  TORCH_CHECK(real || input.at("dtype") == "int64", "dtype: neither float32 nor int64");
  return (real ? at::tensor(input.at("data").get<std::vector<double>>(), at::kFloat)
               : at::tensor(integers("data")))
      .view(integers("shape"));
}

std::string predict(torch::jit::Module& model, at::Device device, const json& request) {
  const c10::InferenceMode inference;
  if (device.is_cuda()) {  // each thread of the server has a stream of its own
    const c10::impl::VirtualGuardImpl cuda(device.type());
    static thread_local const c10::StreamGuard own(cuda.getStreamFromGlobalPool(device));
  }
  std::vector<c10::IValue> inputs;
  for (const json& input : request.at("inputs")) {
    inputs.emplace_back(tensor_of(input).to(device));
  }
  const c10::IValue said = model.forward(inputs);
  json outputs = json::array();
  for (const auto& each : said.isTuple() ? said.toTupleRef().elements().vec() : std::vector{said}) {
    const at::Tensor numbers = each.toTensor().to(at::kCPU, at::kDouble).contiguous();
    const at::ArrayRef<double> data(numbers.data_ptr<double>(), numbers.numel());
    outputs.push_back({{"shape", numbers.sizes().vec()}, {"data", data.vec()}});
  }
  return json{{"outputs", outputs}}.dump();
}

int main(int argc, char** argv) {
  TORCH_CHECK(argc > 3 && dlopen(argv[2], RTLD_NOW), "server MODEL.pt PLUGIN PORT [DEVICE]");
  const at::Device device(argc > 4 ? argv[4] : "cpu");
  torch::jit::Module model = torch::jit::load(argv[1], device);
  at::set_num_threads(1);  // requests run side by side instead
  httplib::Server server;
  server.Post("/predict", [&](const httplib::Request& request, httplib::Response& response) {
    try {
      response.set_content(predict(model, device, json::parse(request.body)), "application/json");
    } catch (const std::exception& error) {  // of the parser, or of the model
      response.status = 400;
      response.set_content(error.what(), "text/plain");
    }
  });
  return server.listen("127.0.0.1", std::stoi(argv[3])) ? 0 : 1;
}
