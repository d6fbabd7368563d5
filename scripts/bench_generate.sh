#!/usr/bin/env bash
# usage: scripts/bench_generate.sh [--preset NAME] [--quick] [--peers] [--json-only]
# Measures what docs/performance.md shows of generation: `warpfuse bench generate` for distilgpt2 and
# gpt2 with random weights and for the shipped model, on a machine without a GPU for distilgpt2 in
# float32 alone. Writes docs/benchmarks/<gpu>-generate.json or cpu-generate.json, and from them the
# tables and the plot (scripts/report.py). Bundles that build/<preset>/bundles lacks are exported.
# Prompts are of ../shared/data/wikitext-2 where that is there, else random. Exit code 1: a variant's
# logits were too far from the baseline's; the report names it.
#   --quick      fewer batches, models and tokens, and one minute for --peers
#   --peers      then Hugging Face's GPT-2 on the same prompts (scripts/generate_peers.py)
#   --json-only  measure, and leave tables and plot alone

. "$(dirname "$0")/common.sh"
parse_options "$@"
leave_out_kernels_without_gpu
QUICK="" PEERS="" JSON_ONLY=""
for argument in "${REST[@]}"; do
  case "$argument" in
    --quick) QUICK=1 ;;
    --peers) PEERS=1 ;;
    --json-only) JSON_ONLY=1 ;;
    *) die "bench_generate.sh: unknown argument $argument; see --help" ;;
  esac
done
host=$BUILD/bin/warpfuse
bundles=$BUILD/bundles
device=cpu
if has_gpu; then
  device=cuda
  use_build warpfuse
else
  build
  python=$WARPFUSE_PYTHON
fi
report() { "$python" "$ROOT/scripts/report.py" "$@"; }

runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
parts=() wrong=0

# Random weights of a named size in all variants; the dtypes are separated by spaces.
export_random() { # name dtypes
  local name=$1 dtype variant
  for dtype in $2; do
    for variant in baseline fused sdpa; do
      [ -f "$bundles/$name-random/$variant-$dtype/bundle.json" ] && continue
      say "export $name $variant $dtype ($SECONDS s so far)"
      export_bundles "$name-random" "config:$name" --variants "$variant" --dtype "$dtype"
    done
  done
}

# Eight pieces of a text as lists of token ids, each as long as GPT-2's context.
prompt_ids() { # text tokenizer
  "$python" -c '
import json, sys
text = open(sys.argv[1], encoding="utf-8").read()
for i in range(8):
    print(json.dumps(text[i * len(text) // 8 :][:8000]))' "$1" |
    "$host" tokenize --tokenizer "$2" --json |
    "$python" -c '
import json, sys
json.dump([json.loads(line)[:1024] for line in sys.stdin], sys.stdout)'
}

# Measures models; the arguments are those of the command.
measure() { # name arguments...
  local name=$1 code=0
  shift
  say "$name ($SECONDS s so far)"
  "$host" bench generate "$@" --device "$device" --json "$runs/$name.json" || code=$?
  case $code in
    0) ;;
    1) wrong=1; [ -f "$runs/$name.json" ] || die "bench_generate.sh: $name gave no results" ;;
    *) die "bench_generate.sh: warpfuse bench generate failed with exit code $code" ;;
  esac
  parts+=("$runs/$name.json")
}

ids=()
data=$ROOT/../shared/data
if [ -f "$data/wikitext-2/valid.txt" ] && [ -f "$data/gpt2-bpe/encoder.json" ]; then
  mkdir "$runs/tokenizer"
  ln -s "$(realpath "$data/gpt2-bpe/encoder.json")" "$runs/tokenizer/vocab.json"
  ln -s "$(realpath "$data/gpt2-bpe/vocab.bpe")" "$runs/tokenizer/merges.txt"
  prompt_ids "$data/wikitext-2/valid.txt" "$runs/tokenizer" > "$runs/wikitext-2-valid.json"
  ids=(--prompt-ids "$runs/wikitext-2-valid.json")
fi

if [ "$device" = cuda ]; then
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
  measure gpt2 -m "$bundles/distilgpt2-random" -m "$bundles/gpt2-random" --rounds 3 "${size[@]}" "${ids[@]}"
  # Its vocabulary is its own, so the ids are random.
  measure wikitext-small -m "$bundles/wikitext-small" --batch 1 --prompt 32
else
  export_random distilgpt2 float32
  # Without the half types, which may lie beside.
  mkdir "$runs/distilgpt2"
  ln -s "$bundles"/distilgpt2-random/*-float32 "$runs/distilgpt2"
  tokens=()
  [ -z "$QUICK" ] || tokens=(-n 64)
  measure distilgpt2 -m "$runs/distilgpt2" --batch 1,8 --prompt 32,published --graph off "${tokens[@]}" "${ids[@]}"
fi
json=$(report join --folder "$ROOT/docs/benchmarks" \
  --command "scripts/bench_generate.sh${QUICK:+ --quick}${PEERS:+ --peers}" "${parts[@]}")

if [ -n "$PEERS" ]; then
  say "Hugging Face's ($SECONDS s so far)"
  code=0 options=()
  [ -z "$QUICK" ] || options+=(--limit-s 60)
  [ "$device" = cuda ] || options+=(--case distilgpt2 float32 1 32)
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
  elif [ -f "$operators" ]; then report --json "$operators"
  else say "left alone: they need ${operators#"$ROOT"/} too (scripts/bench_gpu.sh)"; fi
fi
say "${json#"$ROOT"/}: done after $SECONDS s"
[ "$wrong" -eq 0 ] || die "bench_generate.sh: logits too far from the baseline's; ${json#"$ROOT"/} names them"
