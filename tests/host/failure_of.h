#pragma once

#include <string>

#include "runtime/errors.h"

// What an action that must throw host::Error says: "<exit code>: <message>"; "nothing" if it does
// not throw.
template <typename Action>
std::string failure_of(Action&& action) {
  try {
    action();
  } catch (const warpfuse::host::Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
  return "nothing";
}
