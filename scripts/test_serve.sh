#!/usr/bin/env bash
# usage: scripts/test_serve.sh [--preset NAME]
# Tests `warpfuse serve` under full load; ctest runs a tenth of it. The load is 64 clients x 50 requests while others
# disconnect, 10,000 requests that must not cost memory, and 2,000 malformed requests. Then a tenth of it runs with the shipped model,
# and the server's own threads run under ThreadSanitizer. Takes about five minutes on two cores.
#   --preset asan   the load under AddressSanitizer and UndefinedBehaviorSanitizer

. "$(dirname "$0")/common.sh"
parse_all_options "$@"
leave_out_kernels_without_gpu
build --target warpfuse warpfuse_host bundles
run_tests() { ctest --test-dir "$BUILD" --output-on-failure --no-tests=error "$@"; }

say "full load"
WARPFUSE_LOAD=1 run_tests -R '^host\.serve_(load|hostile)$'
say "a tenth, the shipped model"
WARPFUSE_LOAD_BUNDLE=$BUILD/bundles/wikitext-small/fused-float32 run_tests -R '^host\.serve_load$'
say "its threads under ThreadSanitizer"
use_preset tsan
build --target warpfuse_serve_threads
"$BUILD/bin/warpfuse_serve_threads"
