#pragma once

#include <cstdlib>

#include "runtime/load/plugin.h"
#include "support/catch.h"

// The plugin that WARPFUSE_PLUGIN names, once a process.
inline void load_plugin_under_test() {
  static const bool loaded = [] {
    const char* path = std::getenv("WARPFUSE_PLUGIN");
    REQUIRE(path != nullptr);
    warpfuse::host::require_plugin({.plugin = path, .op_libraries = {}});
    return true;
  }();
  REQUIRE(loaded);
}
