#include "bench/plugin_tools.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "runtime/errors.h"
#include "runtime/load/plugin.h"

namespace warpfuse::host::bench {
namespace {

// The operator, if the loaded plugin has it.
template <typename Signature>
std::optional<c10::TypedOperatorHandle<Signature>> find(const char* name) {
  const auto handle = c10::Dispatcher::singleton().findSchema({name, ""});
  return handle ? std::optional(handle->typed<Signature>()) : std::nullopt;
}

}  // namespace

Json launches_during(const std::function<void()>& action) {
  const auto record = find<void(bool)>("warpfuse::_record_launches");
  const auto launches = find<std::string()>("warpfuse::_launches");
  if (!record || !launches) {
    action();
    return Json::array();
  }
  record->call(true);
  try {
    action();
  } catch (...) {
    record->call(false);
    throw;
  }
  record->call(false);
  return Json::parse(launches->call());
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

}  // namespace warpfuse::host::bench
