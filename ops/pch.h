#pragma once

// What nearly every source of the library reads of libtorch, precompiled once. Each source still
// includes what it uses: clang-tidy reads it without this file. The headers of autograd stay out:
// they cost all other sources more than they save five.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>
