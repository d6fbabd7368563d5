#include "runtime/load/plugin.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <torch/version.h>
#include <warpfuse/info.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/files.h"

namespace warpfuse::host {
namespace {

namespace fs = std::filesystem;

// glibc declares dlopen as never throwing, so that a compiler may drop the handlers around a direct
// call; but an exception of a static initialiser does pass through it.
void* (*volatile const throwing_dlopen)(const char*, int) = dlopen;
using nlohmann::json;

constexpr const char* kFileName = "libwarpfuse.so";
constexpr const char* kMarkerSymbol = "warpfuse_build_info";  // exported by every libwarpfuse.so

// A value from libtorch's own list of "KEY=value, KEY=value" build settings.
std::optional<std::string> libtorch_setting(const std::string& key) {
  const std::string config = at::show_config();
  const size_t at = config.find(" " + key + "=");
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const size_t start = at + key.size() + 2;
  std::string value = config.substr(start, config.find_first_of(",\n ", start) - start);
  return value.empty() ? std::nullopt : std::optional(std::move(value));
}

// The file of the loaded library that defines `symbol`; empty when no global library does.
fs::path file_of_global_symbol(const char* symbol) {
  void* address = dlsym(RTLD_DEFAULT, symbol);
  Dl_info info{};
  if (!address || dladdr(address, &info) == 0 || !info.dli_fname) {
    return {};
  }
  return info.dli_fname;
}

// The running program's own file.
fs::path executable_path() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    fail(ExitCode::plugin, "/proc/self/exe cannot be read ({}): name the plugin with --plugin",
         error.message());
  }
  return path;
}

bool file_contains(const fs::path& path, std::string_view text) {
  const std::string bytes = read_file(path, ExitCode::plugin);
  const std::boyer_moore_horspool_searcher searcher(text.begin(), text.end());
  return std::search(bytes.begin(), bytes.end(), searcher) != bytes.end();
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

bool plugin_is_registered() { return is_registered("warpfuse::build_info"); }

// The path of a plugin that is in the process already. `asked` is --plugin, if given.
fs::path path_of_registered_plugin(const std::optional<std::string>& asked) {
  const fs::path loaded = file_of_global_symbol(kMarkerSymbol);
  if (asked && !same_file(*asked, loaded)) {
    fail(ExitCode::plugin,
         "plugin {} cannot be loaded: {} is in this process already (linked or preloaded)", *asked,
         loaded.empty() ? "another plugin" : loaded.string());
  }
  return loaded;
}

Plugin read_build_info(const fs::path& path) {
  const std::string text = build_info();
  try {
    const json info = json::parse(text);
    Plugin plugin{.path = path.string(),
                  .version = info.at("version"),
                  .schema_version = info.at("schema_version"),
                  .libtorch = info.at("libtorch"),
                  .cuda = std::nullopt,
                  .architectures = info.at("architectures"),
                  .cpu_capabilities = info.at("cpu_capabilities"),
                  .compiler = info.at("compiler")};
    if (!info.at("cuda").is_null()) {
      plugin.cuda = info.at("cuda").get<std::string>();
    }
    return plugin;
  } catch (const json::exception& error) {
    fail(ExitCode::plugin, "plugin {}: build_info is not as expected: {}", path.string(),
         error.what());
  }
}

void check_schema_version(const Plugin& plugin) {
  if (plugin.schema_version != WARPFUSE_SCHEMA_VERSION) {
    fail(ExitCode::plugin, "plugin {}: schema version {} where this program needs {}", plugin.path,
         plugin.schema_version, WARPFUSE_SCHEMA_VERSION);
  }
}

void load_op_library(const std::string& path, const std::string& plugin_path) {
  if (same_file(path, plugin_path)) {
    return;
  }
  // Opened, it would register nothing, and say so in a line of its own.
  if (plugin_is_registered() && file_contains(path, kMarkerSymbol)) {
    fail(ExitCode::plugin, "operator library {}: a second copy of the plugin; {} is loaded already",
         path, plugin_path);
  }
  open_library(path, "operator library");
}

// The operator, if the loaded plugin has it.
template <typename Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find(const char* name) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, ""});
  return handle ? std::optional(handle->typed<Signature>()) : std::nullopt;
}

}  // namespace

void* open_library(const fs::path& path, std::string_view role, ExitCode code) {
  // A path without a slash would be searched for in the system's folders.
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (const fs::file_status status = fs::status(absolute, error); !fs::is_regular_file(status)) {
    const bool unknown = status.type() == fs::file_type::none;
    fail(code, "{} {}: {}", role, path.string(), unknown ? error.message() : "no such file");
  }
  const auto open = [&] { return throwing_dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL); };
  void* library = translating_errors(code, fmt::format("{} {}", role, path.string()), open);
  if (!library) {
    const char* reason = dlerror();
    fail(code, "{} cannot be loaded: {}", role, reason ? reason : path.string());
  }
  return library;
}

bool try_open_library(const char* name) {
  return throwing_dlopen(name, RTLD_NOW | RTLD_LOCAL) != nullptr;
}

std::optional<fs::path> find_beside_program(const char* name) {
  const fs::path folder = executable_path().parent_path();
  const std::array candidates{folder / name, folder.parent_path() / "lib" / name};
  std::error_code ignored;
  const auto* const found = std::ranges::find_if(candidates, [&](const fs::path& candidate) {
    return fs::is_regular_file(candidate, ignored);
  });
  return found == candidates.end() ? std::nullopt : std::optional(*found);
}

const char* const kBuiltLibtorch = TORCH_VERSION;

std::string running_libtorch() { return libtorch_setting("TORCH_VERSION").value_or("unknown"); }

std::optional<std::string> libtorch_cuda() { return libtorch_setting("CUDA_VERSION"); }

std::string major_minor(const std::string& version) {
  const size_t first = version.find('.');
  return version.substr(0, first == std::string::npos ? first : version.find('.', first + 1));
}

std::optional<Plugin> load_plugin(const PluginOptions& options, bool required) {
  if (options.tuning) {
    setenv("WARPFUSE_TUNING", options.tuning->c_str(), /*overwrite=*/1);
  }
  std::optional<fs::path> path;
  if (plugin_is_registered()) {
    path = path_of_registered_plugin(options.plugin);
  } else {
    path =
        options.plugin ? std::optional<fs::path>(*options.plugin) : find_beside_program(kFileName);
    if (path) {
      open_library(*path, "plugin");
      if (!plugin_is_registered()) {
        fail(ExitCode::plugin,
             "plugin {}: no warpfuse plugin (it does not register warpfuse::build_info)",
             path->string());
      }
    }
  }
  std::optional<Plugin> plugin;
  if (path) {
    plugin = translating_errors(ExitCode::plugin, path->string(),
                                [&] { return read_build_info(*path); });
    check_schema_version(*plugin);
  } else if (required) {
    fail(ExitCode::plugin,
         "no plugin: {} is neither beside {} nor in ../lib; name it with --plugin", kFileName,
         executable_path().string());
  }
  for (const std::string& library : options.op_libraries) {
    load_op_library(library, path ? path->string() : std::string());
  }
  return plugin;
}

void check_libtorch(const Plugin& plugin) {
  const std::string running = running_libtorch();
  if (major_minor(plugin.libtorch) != major_minor(running)) {
    fail(ExitCode::plugin, "plugin {}: built for libtorch {}, but libtorch {} is running",
         plugin.path, plugin.libtorch, running);
  }
}

bool is_registered(const std::string& name) {
  return c10::Dispatcher::singleton().findSchema({name, ""}).has_value();
}

void require_operators(const std::vector<std::string>& operators, const std::string& wanted_by) {
  for (const std::string& name : operators) {
    if (!is_registered(name)) {
      fail(ExitCode::plugin,
           "{} needs the operator {}, which no loaded library registers (see --plugin, "
           "--op-library)",
           wanted_by, name);
    }
  }
}

nlohmann::ordered_json launches_during(const std::function<void()>& action) {
  const auto record = find<void(bool)>("warpfuse::_record_launches");
  const auto launches = find<std::string()>("warpfuse::_launches");
  if (!record || !launches) {
    action();
    return nlohmann::ordered_json::array();
  }
  record->call(true);
  try {
    action();
  } catch (...) {
    record->call(false);
    throw;
  }
  record->call(false);
  return nlohmann::ordered_json::parse(launches->call());
}

std::string tuning_text() {
  const auto tuning = find<std::string()>("warpfuse::tuning");
  return tuning ? tuning->call() : std::string();
}

void set_tuning(const std::string& text, const std::string& path) {
  require_operators({"warpfuse::_set_tuning"}, "--tuning");
  translating_errors(ExitCode::usage, "--tuning " + path,
                     [&] { find<void(c10::string_view)>("warpfuse::_set_tuning")->call(text); });
}

}  // namespace warpfuse::host
