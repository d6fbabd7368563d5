#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "runtime/errors.h"

namespace warpfuse::host {

// Returns dlopen's handle (RTLD_NOW, RTLD_LOCAL). It is never closed, since libtorch keeps pointers
// to registered operators. Throws Error(code), also if a static initialiser throws, as a
// TORCH_LIBRARY that clashes with another does; the process should then end.
void* open_library(const std::filesystem::path& path, std::string_view role,
                   ExitCode code = ExitCode::plugin);

// Loads an optional library by its name on the linker's search path.
bool try_open_library(const char* name);

// A library of this name next to the running program, else in ../lib.
std::optional<std::filesystem::path> find_beside_program(const char* name);

// The libraries with operators to load, by paths from the command line.
struct PluginOptions {
  std::optional<std::string> plugin;      // --plugin; by default beside the executable, then ../lib
  std::vector<std::string> op_libraries;  // --op-library
  std::optional<std::string> tuning = {};  // --tuning: WARPFUSE_TUNING for this process
};

// The build_info of the loaded plugin, and its path.
struct Plugin {
  std::string path;
  std::string version;
  int schema_version;
  std::string libtorch;
  std::optional<std::string> cuda;
  std::vector<std::string> architectures;
  std::vector<std::string> cpu_capabilities;
  std::string compiler;
};

// Loads the plugin, unless it is in the process already (linked or preloaded), then the other
// libraries. Empty when no plugin was found or named, which is an error where it is required.
// Throws Error(plugin).
std::optional<Plugin> load_plugin(const PluginOptions& options, bool required);

// Throws Error(plugin) unless the plugin was built for the libtorch that is running. Asking
// libtorch for its version settles whether it has CUDA, so libtorch_cuda must be loaded before, if
// at all.
void check_libtorch(const Plugin& plugin);

// The running libtorch's version, such as "2.11.0"; the headers' version is kBuiltLibtorch.
std::string running_libtorch();
extern const char* const kBuiltLibtorch;
// The CUDA version that the running libtorch was built with, such as "13.0".
std::optional<std::string> libtorch_cuda();

// The version part that binaries depend on: "2.11" of "2.11.0+cu130".
std::string major_minor(const std::string& version);

// Whether a library has registered the operator, "namespace::name".
bool is_registered(const std::string& name);

// Throws Error(plugin) naming the first of the operators ("namespace::name") that no library
// registered.
void require_operators(const std::vector<std::string>& operators, const std::string& wanted_by);

// The kernels that the plugin launches during `action`, as its own log has them: an array of
// objects with tier, grid, threads, registers, occupancy and so on. Empty where the plugin keeps no
// such log.
nlohmann::ordered_json launches_during(const std::function<void()>& action);

// The plugin's tuning table as text; empty where it has none.
std::string tuning_text();

// Replaces the tuning table. Throws Error(plugin) where the plugin cannot, Error(usage) for a text
// that it refuses; `path` is where the text came from.
void set_tuning(const std::string& text, const std::string& path);

}  // namespace warpfuse::host
