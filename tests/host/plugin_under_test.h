#pragma once

#include <cstdlib>

#include "runtime/load/plugin.h"
#include "support/catch.h"

// The plugin that WARPFUSE_PLUGIN names, once a process.
inline void load_plugin_under_test() {
  static const bool loaded = [] {
    const char* path = std::getenv("WARPFUSE_PLUGIN");
    REQUIRE(path != nullptr);
    warpfuse::host::load_plugin({.plugin = path, .op_libraries = {}}, /*required=*/true);
    return true;
  }();
  REQUIRE(loaded);
}
