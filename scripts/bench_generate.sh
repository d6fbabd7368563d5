#!/usr/bin/env bash
# usage: scripts/bench_generate.sh [--preset NAME] [--text F --tokenizer DIR] [--quick|--decode] [--peers] [--json-only]
# Measures the generation part of docs/benchmarks/<device>.md: `warpfuse bench generate` for distilgpt2 and
# gpt2 with random weights and for the shipped model. Without a GPU it measures only distilgpt2 in
# float32, and its variant steps in float16. Writes docs/benchmarks/<gpu>-generate.json or cpu-generate.json, and from them the
# tables and the plot (scripts/report.py). Exports bundles that build/<preset>/bundles lacks.
# Prompts are random tokens or come from a text: the published tables use WikiText-2's (docs/bench.md says
# where it and GPT-2's tokenizer are). Exit code 1: a variant's
# logits were too far from the baseline's; the report names it.
#   --text F, --tokenizer DIR  take prompts from this text, with GPT-2's vocab.json and merges.txt in this folder
#   --quick      fewer batches, models and tokens, and one minute for --peers
#   --decode     only the part that docs/operators/decode.md shows, as docs/benchmarks/<gpu>-steps.json; with
#                --peers, Hugging Face's compiled loop too
#   --peers      then Hugging Face's GPT-2 on the same prompts (scripts/generate_peers.py)
#   --json-only  measure, and leave the tables and the plot unchanged

. "$(dirname "$0")/common.sh"
FLAGS="--quick|--decode|--peers|--json-only" VALUES="--text|--tokenizer"
parse_all_options "$@"
leave_out_kernels_without_gpu
[ -z "$QUICK" ] || [ -z "$DECODE" ] || die "bench_generate.sh: --quick and --decode exclude each other"
prompts=()
if [ -n "$TEXT$TOKENIZER" ]; then
  [ -e "$TEXT" ] && [ -e "$TOKENIZER" ] || die "bench_generate.sh: --text and --tokenizer go together, and are paths"
  prompts=(--text "$(realpath "$TEXT")" --tokenizer "$(realpath "$TOKENIZER")")
fi
bundles=$BUILD/bundles
device=cpu
if has_gpu; then
  device=cuda
  use_build warpfuse
else
  [ -z "$DECODE" ] || die "bench_generate.sh: --decode needs a GPU"
  build
  python=$WARPFUSE_PYTHON
fi
start_runs

# Random weights of a named size in all variants; the dtypes are separated by spaces.
export_random() { # name dtypes
  local name=$1 dtype variant
  for dtype in $2; do
    for variant in baseline fused sdpa steps; do
      [ -f "$bundles/$name-random/$variant-$dtype/bundle.json" ] && continue
      say "export $name $variant $dtype ($SECONDS s so far)"
      export_bundles "$name-random" "config:$name" --variants "$variant" --dtype "$dtype"
    done
  done
}

measure_models() { measure "" "$1" generate "${@:2}" --device "$device" "${prompts[@]}"; }

if [ -n "$DECODE" ]; then
  export_random distilgpt2 "float16 float32"
  export_random gpt2 float16
  options=(--graph on --rounds 3)
  measure_models distilgpt2 -m "$bundles/distilgpt2-random" --dtype float16 --batch 1,8,32,128 --prompt 32,512 \
    --prefill 1x1024,8x1024 "${options[@]}"
  measure_models gpt2 -m "$bundles/gpt2-random" --dtype float16 --batch 1 --prompt 32 "${options[@]}"
  measure_models float32 -m "$bundles/distilgpt2-random" --dtype float32 --batch 1 --prompt 32 "${options[@]}"
elif [ "$device" = cuda ]; then
  size=(--batch "1,8,32,128" --prompt "32,512,published" --prefill "1x1024,8x1024") dtypes="float16 float32"
  if [ -n "$QUICK" ]; then
    size=(--batch "1,32" --prompt "32,512" --prefill 8x1024) dtypes=float16
  fi
  export_random distilgpt2 "float16 float32"
  export_random gpt2 "$dtypes"
  if [ ! -d "$bundles/wikitext-small" ]; then
    say "export wikitext-small ($SECONDS s so far)"
    export_small_model
  fi
  measure_models gpt2 -m "$bundles/distilgpt2-random" -m "$bundles/gpt2-random" --rounds 3 "${size[@]}"
  # Its vocabulary is its own, so the ids are random.
  measure "" wikitext-small generate -m "$bundles/wikitext-small" --batch 1 --prompt 32 --device "$device"
else
  export_random distilgpt2 float32
  half=$bundles/distilgpt2-random/steps-float16
  [ -f "$half/bundle.json" ] ||
    export_bundles distilgpt2-random config:distilgpt2 --variants steps --dtype float16
  # Without other half types, which may lie beside.
  mkdir "$runs/distilgpt2"
  ln -s "$bundles"/distilgpt2-random/*-float32 "$half" "$runs/distilgpt2"
  measure_models distilgpt2 -m "$runs/distilgpt2" --batch 1,8 --prompt 32,published --graph off ${QUICK:+-n 64}
fi
folder=$ROOT/docs/benchmarks
[ -z "$DECODE" ] || folder=$runs/merged
json=$(report merge --folder "$folder" \
  --command "scripts/bench_generate.sh${QUICK:+ $QUICK}${DECODE:+ $DECODE}${PEERS:+ $PEERS}" "${parts[@]}")
if [ -n "$DECODE" ]; then
  steps=$ROOT/docs/benchmarks/$(basename "$json" -generate.json)-steps.json
  mv "$json" "$steps"
  json=$steps
fi

if [ -n "$PEERS" ]; then
  say "Hugging Face's ($SECONDS s so far)"
  code=0 options=()
  [ -z "$QUICK" ] || options+=(--limit-s 60)
  [ "$device" = cuda ] || options+=(--case distilgpt2 float32 1 32)
  [ -z "$DECODE" ] || options=(--only "hf compiled loop" --limit-s 120 --case distilgpt2 float16 1 32
    --case gpt2 float16 1 32 --case distilgpt2 float32 1 32)
  "$python" "$ROOT/scripts/generate_peers.py" --rows "$json" "${options[@]}" || code=$?
  case $code in
    0) ;;
    3) say "not measured: see the line above" ;;
    *) die "bench_generate.sh: generate_peers.py failed with exit code $code" ;;
  esac
fi

if [ -z "$JSON_ONLY" ]; then
  operators=${json%-generate.json}.json
  say "tables and plot"
  if [ "$device" = cpu ]; then report
  elif [ -n "$DECODE" ]; then report decode
  elif [ -f "$operators" ]; then report --json "$operators"
  else say "left alone: they need ${operators#"$ROOT"/} too (scripts/bench_gpu.sh)"; fi
fi
say "${json#"$ROOT"/}: done after $SECONDS s"
[ "$wrong" -eq 0 ] || die "bench_generate.sh: logits too far from the baseline's; ${json#"$ROOT"/} names them"
