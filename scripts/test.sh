#!/usr/bin/env bash
# usage: scripts/test.sh [--torch VERSION] [--preset NAME] [ctest arguments]
# Sets up, builds and runs every test with ctest. Tests that need a GPU or the data folder are reported as
# skipped if it is missing. Without a GPU, CUDA kernels and their tests are left out of
# the build. Examples:
#   scripts/test.sh                       everything
#   scripts/test.sh -L smoke              the quick tests
#   scripts/test.sh --preset asan         CPU code under the sanitizers
#   scripts/test.sh --preset release      with CUDA kernels and their tests, which at least compile
#   scripts/test.sh --torch 2.15.0        against another release of libtorch
#   WARPFUSE_TEST_THREADS=16              the operators' tests with 16 threads, whatever cores there are

. "$(dirname "$0")/common.sh"
parse_options "$@"
leave_out_kernels_without_gpu
build
say "test"
ctest --test-dir "$BUILD" --output-on-failure --no-tests=error -j "$(nproc)" "${REST[@]}"
