#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/errors.h"

namespace warpfuse::host {

// Deeper than any file of ours, and shallow enough for the stack of a program that prints, compares
// or frees the value.
inline constexpr int kMaxJsonDepth = 100;

// The value of a JSON text; discarded where the text is no JSON. Throws Error(code) for one that is
// nested too deeply; `where` names it.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, ExitCode code, std::string_view where) {
  const auto check_depth = [&](int depth, nlohmann::json::parse_event_t /*event*/,
                               const Json& /*value*/) {
    if (depth > kMaxJsonDepth) {
      fail(code, "{}: nested more than {} levels deep", where, kMaxJsonDepth);
    }
    return true;
  };
  return Json::parse(text, check_depth, /*allow_exceptions=*/false);
}

}  // namespace warpfuse::host
