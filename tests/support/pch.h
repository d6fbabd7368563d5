#pragma once

// What nearly every test file includes, precompiled once.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
