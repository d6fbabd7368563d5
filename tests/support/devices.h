#pragma once

// One test body, run on the CPU and on the GPU:
//
//   WARPFUSE_DEVICE_TEST("softmax of an empty tensor", "[softmax]") {
//     const at::Tensor x = at::empty({0, 3}, device);
//   }
//
// makes two test cases, "... (cpu)" and "... (cuda)"; the second is tagged [gpu] and is skipped
// where ATen sees no GPU. SECTIONs may be used in the body.

#include <ATen/ATen.h>

#include "catch.h"

/// Whether ATen sees a GPU (which a program does only once libtorch_cuda is loaded, as the plugin's
/// CUDA build does).
inline bool has_gpu() { return at::hasCUDA(); }

inline constexpr const char* kNoGpu = "no GPU, or the plugin is built without CUDA";

inline void run_on_device(at::DeviceType type, void (*body)(const at::Device&)) {
  if (type == at::kCUDA && !has_gpu()) {
    skip_test(kNoGpu);
    return;
  }
  at::manual_seed(20);
  body(type == at::kCUDA ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU));
}

/// "cpu" or "cuda", as counters are named.
inline std::string backend_name(const at::Device& device) {
  return device.is_cuda() ? "cuda" : "cpu";
}

#define WARPFUSE_JOIN_(a, b) a##b
#define WARPFUSE_JOIN(a, b) WARPFUSE_JOIN_(a, b)

#define WARPFUSE_DEVICE_TEST_(body, name, tags)                               \
  static void body(const at::Device& device);                                 \
  TEST_CASE(name " (cpu)", tags) { run_on_device(at::kCPU, body); }           \
  TEST_CASE(name " (cuda)", tags "[gpu]") { run_on_device(at::kCUDA, body); } \
  static void body([[maybe_unused]] const at::Device& device)

#define WARPFUSE_DEVICE_TEST(name, tags) \
  WARPFUSE_DEVICE_TEST_(WARPFUSE_JOIN(device_test_, __COUNTER__), name, tags)

/// A test case for the GPU alone.
#define WARPFUSE_GPU_TEST_(body, name, tags)                        \
  static void body(const at::Device& device);                       \
  TEST_CASE(name, tags "[gpu]") { run_on_device(at::kCUDA, body); } \
  static void body([[maybe_unused]] const at::Device& device)

#define WARPFUSE_GPU_TEST(name, tags) \
  WARPFUSE_GPU_TEST_(WARPFUSE_JOIN(gpu_test_, __COUNTER__), name, tags)
