#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/ranges.h>

#include <sstream>

#include "commands/commands.h"
#include "runtime/load/session.h"
#include "runtime/output.h"
#include "runtime/parse.h"
#include "runtime/threads.h"

namespace warpfuse::host {
namespace {

using nlohmann::json;

constexpr Option kInfoOptions[] = {
    {"json", kSwitch, "as one JSON object"},
    {"tuning", kSwitch, "only the plugin's table of tiers, as text"},
};

// The dispatch keys that the operator has a kernel for.
std::vector<std::string> backends_of(const c10::OperatorHandle& handle) {
  using c10::DispatchKey;
  static constexpr std::array kKeys{DispatchKey::CPU,
                                    DispatchKey::CUDA,
                                    DispatchKey::Meta,
                                    DispatchKey::Autograd,
                                    DispatchKey::AutocastCPU,
                                    DispatchKey::AutocastCUDA,
                                    DispatchKey::CompositeExplicitAutograd,
                                    DispatchKey::CompositeImplicitAutograd};
  std::vector<std::string> names;
  for (const DispatchKey key : kKeys) {
    if (!handle.hasKernelForDispatchKey(key)) {
      continue;
    }
    names.emplace_back(key == DispatchKey::AutocastCUDA ? "AutocastCUDA" : c10::toString(key));
  }
  return names;
}

json list_operators() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::OperatorName> names = dispatcher.getAllOpNames();
  std::erase_if(names,
                [](const c10::OperatorName& name) { return !name.name.starts_with("warpfuse::"); });
  std::ranges::sort(names, [](const auto& a, const auto& b) { return a.name < b.name; });
  json operators = json::array();
  for (const c10::OperatorName& name : names) {
    const auto handle = dispatcher.findSchema(name);
    if (!handle) {
      continue;
    }
    std::ostringstream schema;
    schema << handle->schema();
    operators.push_back(
        {{"name", name.name}, {"schema", schema.str()}, {"backends", backends_of(*handle)}});
  }
  return operators;
}

json gather(const Plugin& plugin) {
  const json facts = device_facts();
  const auto or_null = [](const std::optional<std::string>& text) {
    return text ? json(*text) : json();
  };
  return {{"version", WARPFUSE_VERSION},
          {"libtorch", {{"built_against", kBuiltLibtorch}, {"running", running_libtorch()}}},
          {"cuda", {{"plugin", or_null(plugin.cuda)}, {"libtorch", or_null(libtorch_cuda())}}},
          {"plugin",
           {{"path", plugin.path},
            {"version", plugin.version},
            {"schema_version", plugin.schema_version},
            {"libtorch", plugin.libtorch},
            {"architectures", plugin.architectures},
            {"cpu_capabilities", plugin.cpu_capabilities},
            {"compiler", plugin.compiler}}},
          {"cpu", {{"capability", at::get_cpu_capability()}, {"threads", at::get_num_threads()}}},
          {"gpus", facts["gpus"]},
          {"tuning", facts.value("tuning", json())},
          {"operators", list_operators()}};
}

void print_text(const json& info) {
  const auto line = [](std::string_view label, const std::string& value) {
    print("{:<12}{}\n", label, value);
  };
  const auto text = [](const json& value) {
    return value.is_null() ? "none" : value.get<std::string>();
  };
  const auto list = [](const json& values) {
    return values.empty()
               ? "none"
               : fmt::format("{}", fmt::join(values.get<std::vector<std::string>>(), ", "));
  };
  const json& plugin = info["plugin"];
  line("warpfuse", text(info["version"]));
  line("libtorch", fmt::format("{} running, {} built against", text(info["libtorch"]["running"]),
                               text(info["libtorch"]["built_against"])));
  line("CUDA", fmt::format("plugin {}, libtorch {}", text(info["cuda"]["plugin"]),
                           text(info["cuda"]["libtorch"])));
  line("plugin",
       fmt::format("{} (version {}, schema version {}, libtorch {}, {})", text(plugin["path"]),
                   text(plugin["version"]), plugin["schema_version"].get<int>(),
                   text(plugin["libtorch"]), text(plugin["compiler"])));
  line("built for", fmt::format("GPUs {}; CPUs {}", list(plugin["architectures"]),
                                list(plugin["cpu_capabilities"])));
  line("CPU", fmt::format("{}, {} threads", text(info["cpu"]["capability"]),
                          info["cpu"]["threads"].get<int>()));
  if (info["gpus"].empty()) {
    line("GPU", "none");
  }
  for (const json& gpu : info["gpus"]) {
    line("GPU",
         fmt::format("cuda:{} {}, compute capability {}, {:.0f} GiB, {} multiprocessors, {}",
                     gpu["index"].get<int>(), text(gpu["name"]), text(gpu["compute_capability"]),
                     gpu["memory_bytes"].get<double>() / (1024.0 * 1024.0 * 1024.0),
                     gpu["multiprocessors"].get<int>(),
                     gpu["has_kernel"].get<bool>() ? "has kernels" : "NO KERNEL in this plugin"));
  }
  line("tuning", text(info["tuning"]));
  print("\n");
  for (const json& op : info["operators"]) {
    print("{}\n    {}\n", text(op["schema"]), list(op["backends"]));
  }
}

ExitCode run_info(const Arguments& arguments) {
  // GPUs are listed by the plugin, so that libtorch's CUDA need not be loaded.
  const Session session =
      open_session(arguments.plugin_options(), "cpu", {}, {"warpfuse::build_info"});
  if (arguments.has("tuning")) {
    print("{}", tuning_text());
    return ExitCode::ok;
  }
  choose_threads({}, /*watched=*/false);  // as other commands would
  const json info = gather(session.plugin);
  if (arguments.has("json")) {
    print("{}\n", dump(info, 2));
  } else {
    print_text(info);
  }
  return ExitCode::ok;
}

}  // namespace

Command info_command() {
  return {.name = "info",
          .summary = "show versions, GPUs and the operators of the plugin",
          .help = "Shows versions, processors and the operators of the loaded plugin.\n",
          .examples =
              "  warpfuse info\n"
              "  warpfuse info --json | python3 -m json.tool\n"
              "  warpfuse info --tuning > table.txt\n",
          .options = {{kInfoOptions}, {kPluginOptions}},
          .run = run_info};
}

}  // namespace warpfuse::host
