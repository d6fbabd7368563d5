#!/usr/bin/env bash
# usage: scripts/demo.sh [--torch VERSION] [--preset NAME] [arguments of warpfuse generate]
# Sets up, builds, exports the small GPT-2 and generates text: on the GPU where there is one, else on
# the CPU, without CUDA kernels. Says how many softmax calls of the model the plugin served.

. "$(dirname "$0")/common.sh"
parse_options "$@"
leave_out_kernels_without_gpu
[ ${#REST[@]} -gt 0 ] || REST=(-p "On September 14, the storm" -n 110)
build --target warpfuse_host demo_bundle
say "warpfuse generate -m ${BUILD#"$ROOT"/}/bundles/wikitext-small/fused-float32 $(quoted "${REST[@]}")"
"$BUILD/bin/warpfuse" generate -m "$BUILD/bundles/wikitext-small/fused-float32" "${REST[@]}"
