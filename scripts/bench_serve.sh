#!/usr/bin/env bash
# usage: scripts/bench_serve.sh [--preset NAME] [--variant NAME] [--json-only] [options of bench_serve.py]
# Measures the server's speed for docs/serve.md, and `warpfuse bench generate` at the same batch: distilgpt2 with
# random weights, in float16 on a GPU, else in float32. Writes docs/benchmarks/<gpu>-serve.json or cpu-serve.json, and
# from it the tables and the plot. wrk makes the load (Debian's package, or WRK=path), on other cores than the server's
# if there are four or more.
#   --variant NAME  variant of the bundle (default: steps)
#   --json-only     measure, and leave the tables and the plot unchanged

. "$(dirname "$0")/common.sh"
FLAGS="--json-only" VALUES="--variant"
parse_options "$@"
leave_out_kernels_without_gpu
VARIANT=${VARIANT:-steps} options=("${REST[@]}")
if has_gpu; then
  device=cuda dtype=float16
  use_build warpfuse
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1 | tr '[:upper:] ' '[:lower:]-')
else
  device=cpu dtype=float32 name=cpu
  build --target warpfuse_host warpfuse
  python=$WARPFUSE_PYTHON
  # Enough to say what more clients are worth on a few cores.
  options=(--clients 1,2,4,8 -n 64 --seconds 20 --long-clients 0 "${options[@]}")
fi
bundle=$BUILD/bundles/distilgpt2-random/$VARIANT-$dtype
if [ ! -f "$bundle/bundle.json" ]; then
  say "export distilgpt2 $VARIANT $dtype"
  export_bundles distilgpt2-random config:distilgpt2 --variants "$VARIANT" --dtype "$dtype"
fi
"$python" "$ROOT/scripts/bench_serve.py" --host "$BUILD/bin/warpfuse" --bundle "$bundle" --device "$device" \
  --command "scripts/bench_serve.sh${*:+ $(quoted "$@")}" --json "$ROOT/docs/benchmarks/$name-serve.json" "${options[@]}"
[ -n "$JSON_ONLY" ] || report serve
