#!/usr/bin/env bash
# usage: scripts/bench_gpu.sh [--preset NAME] [--quick] [--json-only]
# Measures everything in docs/benchmarks/<gpu>.md, on a machine with a GPU: the presets
# table, basic, sweep, odd, logprob and dropout of `warpfuse bench`, decode's draws of tokens and, if Nsight Compute (ncu)
# works, memory traffic; then other implementations and ours together (scripts/bench_peers.py), if they are installed.
# Writes docs/benchmarks/<gpu>.json and <gpu>-peers.json, and from them the tables and plots
# (scripts/report.py). Uses an existing build in build/<preset>, else makes one. The
# torch is WARPFUSE_PYTHON's, else python3's. Exit code 1: a kernel's result was wrong; the
# report names it.
#   --quick      fewer samples
#   --json-only  measure, and leave the tables and plots unchanged

. "$(dirname "$0")/common.sh"
FLAGS="--quick|--json-only"
parse_all_options "$@"
use_build warpfuse
start_runs
measure_preset() { measure "$1" "$1" "${@:2}" --shapes "$1" --device cuda $QUICK; }

measure_preset table all
measure_preset basic all --dtype float32,bfloat16 --backward
measure_preset sweep all
measure_preset odd all
measure_preset logprob fused_logprob
measure_preset dropout all
measure_preset decode sample_tokens
json=$(report merge --folder "$ROOT/docs/benchmarks" --command "scripts/bench_gpu.sh${QUICK:+ $QUICK}" "${parts[@]}")

say "memory traffic ($SECONDS s so far)"
ncu=$(command -v ncu || ls -d /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2> /dev/null | tail -n 1 || true)
if [ -z "$ncu" ]; then
  say "not counted: there is no ncu on this machine"
elif ! report traffic --json "$json" --host "$BUILD/bin/warpfuse" --ncu "$ncu"; then
  say "not counted in full: see the line above"
fi

say "other implementations beside ours ($SECONDS s so far)"
code=0
commit=$("$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["versions"]["commit"])' "$json")
"$python" "$ROOT/scripts/bench_peers.py" --plugin "$BUILD/lib/libwarpfuse.so" --commit "$commit" \
  --rows "$json" --presets table,odd,logprob,dropout,decode $QUICK || code=$?
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
