#pragma once

// Catch2 v2 (catch.hpp) and v3 (catch_all.hpp) beside libtorch. Both define CHECK: libtorch's comes
// first and is dropped.

#include <c10/util/Logging.h>

#undef CHECK

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include "skip.h"
