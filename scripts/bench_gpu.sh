#!/usr/bin/env bash
# usage: scripts/bench_gpu.sh [--preset NAME] [--quick] [--json-only]
# Measures everything that docs/benchmarks/<gpu>.md shows, on a machine with one: the presets
# table, basic, sweep, odd, logprob and dropout of `warpfuse bench` and, where Nsight Compute (ncu) works, memory
# traffic; then other implementations beside ours (scripts/bench_peers.py), where that finds what it needs.
# Writes docs/benchmarks/<gpu>.json and <gpu>-peers.json, and from them the tables and plots
# (scripts/report.py). Uses the build that came along in build/<preset>, else one that it makes; the
# torch is that of WARPFUSE_PYTHON, else python3's. Exit code 1: a kernel's result was wrong; the
# report names it.
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
measure basic all --dtype float32,bfloat16 --backward
measure sweep all
measure odd all
measure logprob fused_logprob
measure dropout all
json=$(report merge --folder "$ROOT/docs/benchmarks" --command "scripts/bench_gpu.sh${QUICK:+ --quick}" "${parts[@]}")

say "memory traffic ($SECONDS s so far)"
ncu=$(command -v ncu || ls -d /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2> /dev/null | tail -n 1 || true)
if [ -z "$ncu" ]; then
  say "not counted: there is no ncu on this machine"
elif ! report traffic --json "$json" --host "$host" --ncu "$ncu"; then
  say "not counted in full: see the line above"
fi

say "other implementations beside ours ($SECONDS s so far)"
code=0
commit=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["versions"]["commit"])' "$json")
"$python" "$ROOT/scripts/bench_peers.py" --plugin "$BUILD/lib/libwarpfuse.so" --commit "$commit" \
  --rows "$json" --presets table,odd,logprob,dropout "${QUICK[@]}" || code=$?
case $code in
  0) ;;
  1) wrong=1 ;;
  3) say "not measured: see the line above" ;;
  *) die "bench_gpu.sh: bench_peers.py failed with exit code $code" ;;
esac

if [ -z "$JSON_ONLY" ]; then
  say "tables and plots"
  report --json "$json"
fi
say "${json#"$ROOT"/}: done after $SECONDS s"
[ "$wrong" -eq 0 ] || die "bench_gpu.sh: a kernel gave wrong results; ${json#"$ROOT"/} names it"
