#!/usr/bin/env bash
# usage: scripts/demo.sh [--torch VERSION] [--preset NAME] [arguments of warpfuse generate]
#        scripts/demo.sh [--torch VERSION] [--preset NAME] --rewrite
# Sets up, builds, exports the small GPT-2 and generates text, on the GPU if there is one, else on
# the CPU, without CUDA kernels. Reports how many softmax calls of the model ran in the plugin.
# With --rewrite, two models that do not use the plugin are rewritten, compared with themselves, and
# generate: a Hugging Face GPT-2 with random weights, traced as it is, and the small GPT-2's baseline.

. "$(dirname "$0")/common.sh"

warpfuse() {
  say "warpfuse $(quoted "$@")"
  "$BUILD/bin/warpfuse" "$@"
}

parse_options "$@"
leave_out_kernels_without_gpu
if [ "${REST[0]:-}" = --rewrite ]; then
  [ ${#REST[@]} -eq 1 ] || die "demo.sh: unexpected argument '${REST[1]}' after --rewrite"
  build --target warpfuse_host rewrite_demo_bundle
  device=cpu
  ! has_gpu || [ "$PRESET" = cpu-only ] || device=cuda
  prompt=(--device "$device" -p "On September 14, the storm")
  if "$WARPFUSE_PYTHON" -c 'import transformers' 2> /dev/null; then
    model=$BUILD/gpt2.pt tokenizer=$ROOT/traced_models/wikitext-small
    "$WARPFUSE_PYTHON" "$ROOT/scripts/trace_gpt2.py" "$tokenizer" "$device" "$model"
    warpfuse rewrite "$model" --dry-run
    warpfuse verify --rewrite "$model" "$model" --device "$device" \
      --input B,T:int64:0..4096 --batch 1,3 --lengths 1,7,64,256
    warpfuse generate --rewrite -m "$model" --tokenizer "$tokenizer" "${prompt[@]}" -n 16
  else
    say "no GPT-2 of Hugging Face: transformers is not installed for $WARPFUSE_PYTHON"
  fi
  model=$BUILD/bundles/wikitext-small/baseline-float32
  warpfuse rewrite "$model" --dry-run
  warpfuse verify --rewrite "$model" "$model" --device "$device" -n 8
  warpfuse generate --rewrite -m "$model" "${prompt[@]}" -n 60
  exit
fi
[ ${#REST[@]} -gt 0 ] || REST=(-p "On September 14, the storm" -n 110)
build --target warpfuse_host demo_bundle
say "warpfuse generate -m ${BUILD#"$ROOT"/}/bundles/wikitext-small/fused-float32 $(quoted "${REST[@]}")"
"$BUILD/bin/warpfuse" generate -m "$BUILD/bundles/wikitext-small/fused-float32" "${REST[@]}"
