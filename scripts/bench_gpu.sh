#!/usr/bin/env bash
# usage: scripts/bench_gpu.sh [--preset NAME] [--quick] [--json-only]
# Measures everything that docs/performance.md shows of a GPU, on a machine with one: the presets
# table, seed, sweep and logprob of `warpfuse bench` and, where Nsight Compute (ncu) works, memory traffic.
# Writes docs/benchmarks/<gpu>.json, and from it the tables and plots (scripts/report.py). Uses the
# build that came along in build/<preset>, else one that it makes; the torch is that of
# WARPFUSE_PYTHON, else python3's. Exit code 1: a kernel's result was wrong; the report names it.
#   --quick      fewer samples
#   --json-only  measure, and leave tables and plots alone

. "$(dirname "$0")/common.sh"
parse_options "$@"
QUICK=() JSON_ONLY=""
for argument in "${REST[@]}"; do
  case "$argument" in
    --quick) QUICK=(--quick) ;;
    --json-only) JSON_ONLY=1 ;;
    *) die "bench_gpu.sh: unknown argument $argument; see --help" ;;
  esac
done
host=$BUILD/bin/warpfuse
use_build warpfuse
report() { "$python" "$ROOT/scripts/report.py" "$@"; }

runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
parts=() wrong=0

# Measures a preset; the further arguments are those of `warpfuse bench`.
measure() { # preset arguments...
  local preset=$1 code=0
  shift
  say "$preset ($SECONDS s so far)"
  "$host" bench "$@" --shapes "$preset" --device cuda --json "$runs/$preset.json" "${QUICK[@]}" || code=$?
  case $code in
    0) ;;
    1) wrong=1; [ -f "$runs/$preset.json" ] || die "bench_gpu.sh: $preset gave no results" ;;
    *) die "bench_gpu.sh: warpfuse bench failed with exit code $code" ;;
  esac
  parts+=("$preset=$runs/$preset.json")
}

measure table all
measure seed all --dtype float32,bfloat16 --backward
measure sweep softmax
measure logprob fused_logprob
json=$(report merge --folder "$ROOT/docs/benchmarks" --command "scripts/bench_gpu.sh${QUICK:+ --quick}" "${parts[@]}")

say "memory traffic ($SECONDS s so far)"
ncu=$(command -v ncu || ls -d /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2> /dev/null | tail -n 1 || true)
if [ -z "$ncu" ]; then
  say "not counted: there is no ncu on this machine"
elif ! report traffic --json "$json" --host "$host" --ncu "$ncu"; then
  say "not counted in full: see the line above"
fi

if [ -z "$JSON_ONLY" ]; then
  say "tables and plots"
  report --json "$json"
fi
say "${json#"$ROOT"/}: done after $SECONDS s"
[ "$wrong" -eq 0 ] || die "bench_gpu.sh: a kernel gave wrong results; ${json#"$ROOT"/} names it"
