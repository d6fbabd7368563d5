#!/usr/bin/env bash
# usage: scripts/test_gpu.sh [--preset NAME] [--report FILE] [--resume] [--only REGEX] [--ptx80]
# Runs all GPU tests on a machine with a GPU and writes docs/gpu_report.md. Uses an existing build in
# build/<preset>, else makes one. The torch is WARPFUSE_PYTHON's, else
# python3's. Groups of entries run in parallel; entries that measure have a GPU of their own, or run
# last. The report is rewritten after each entry.
#   --report FILE   another place for the report
#   --resume        continues an interrupted run: keeps the entries in the report of this commit, except
#                   those that failed or were skipped
#   --only REGEX    runs only the entries whose names match, and keeps the rest of a report of this
#                   commit
#   --ptx80         builds a second library in build/ptx80 whose kernels are only the PTX for 8.0,
#                   translated for this GPU, and tests that too; an existing build is always tested

. "$(dirname "$0")/common.sh"
FLAGS="--ptx80|--resume" VALUES="--report|--only"
parse_all_options "$@"
REPORT=${REPORT:-$ROOT/docs/gpu_report.md}
use_build warpfuse_tests
for program in warpfuse warpfuse_host_tests warpfuse_broken_kernels; do
  [ -x "$BUILD/bin/$program" ] || die "test_gpu.sh: $BUILD/bin/$program is not built"
done

work=$(mktemp -d)
earlier=$work/earlier
touch "$earlier"
trap 'rm -rf "$work"' EXIT
commit=${WARPFUSE_COMMIT:-$(git -C "$ROOT" rev-parse --short HEAD 2> /dev/null || echo unknown)}
if [ -n "$RESUME$ONLY" ] && grep -q -x -F "| commit | $commit |" "$REPORT" 2> /dev/null; then
  kept='passed'
  [ -z "$ONLY" ] || kept='passed|skipped|\*\*failed|not finished'
  grep -E "^\| .* \| ($kept)" "$REPORT" > "$earlier" || true
fi

# One entry of the report: its name and command. Exit code 77 is a skip, as in ctest. Each has a file for
# its row, by group and number, which stays once it is there: other groups read all of them.
group=0 number=0
entry() { # name command...
  local name=$1 code=0 result summary row start=$SECONDS log=$work/log.$group
  shift
  number=$((number + 1))
  row=$work/row.$group.$(printf %02d $number)
  if [ -n "$ONLY" ]; then
    [[ $name =~ $ONLY ]] || return 0
  elif grep -F "| $name | " "$earlier" > "$work/kept.$group"; then
    mv "$work/kept.$group" "$row"
    return 0
  fi
  say "$name"
  echo "| $name | not finished | | |" > "$row"
  write_report
  "$@" > "$log" 2>&1 || code=$?
  tail -n 40 "$log" >&2
  case $code in
    0) result=passed ;;
    77) result=skipped ;;
    *) result="**failed** ($code)" ;;
  esac
  summary=$(grep -E 'assertions|^Ran |^OK|FAILED|skipped|SUMMARY|^agree|plugin:|checks,' "$log" | tail -n 8 | tr '\n' ' ' | tr '|' '/' || true)
  echo "| $name | $result | $((SECONDS - start)) s | $summary |" > "$row"
  write_report
}

# The rows of this run. With --only, in the places of the earlier report's, which keeps what this run has not.
rows() {
  if [ -z "$ONLY" ]; then cat "$work"/row.*; return; fi
  cat "$work"/row.* | awk -F ' [|] ' -v earlier="$earlier" '
    { row[$1] = $0; name[++count] = $1 }
    END {
      while ((getline < earlier) > 0) { print ($1 in row) ? row[$1] : $0; delete row[$1] }
      for (i = 1; i <= count; ++i) if (name[i] in row) print row[name[i]]
    }'
}
count() { rows | grep -c -F "| $1" || true; }
write_report() {
  {
    echo "# GPU report"
    echo
    echo "Written by \`scripts/test_gpu.sh\`; not edited by hand."
    echo
    echo "| | |"
    echo "|---|---|"
    echo "| date | $(date -u +%Y-%m-%d) |"
    echo "| GPU | $gpu |"
    echo "| library | $library |"
    echo "| commit | $commit |"
    echo
    echo "$(count passed) passed, $(count "**failed**") failed, $(count skipped) skipped"
    echo
    echo "| entry | result | time | summary |"
    echo "|---|---|--:|---|"
    rows
  } > "$work/report.$group"
  mv "$work/report.$group" "$REPORT"
}

export WARPFUSE_PLUGIN=$BUILD/lib/libwarpfuse.so WARPFUSE_HOST=$BUILD/bin/warpfuse
export WARPFUSE_BUNDLES=$BUILD/bundles
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1 || true)
library=$("$python" -c 'import ctypes,os; l=ctypes.CDLL(os.environ["WARPFUSE_PLUGIN"]); f=l.warpfuse_build_info; f.restype=ctypes.c_char_p; print(f().decode())' || true)
ptx80=$ROOT/build/ptx80
build_ptx80() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  # The driver would translate the PTX too, on one core for each file of kernels: minutes.
  local -x NVCC_APPEND_FLAGS="--generate-code=arch=compute_80,code=sm_$capability"
  # WARPFUSE_WITH_CUDA=ON: without a compiler this is an error, not a library without kernels.
  cmake -S "$ROOT" -B "$ptx80" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWARPFUSE_WITH_CUDA=ON \
    -DWARPFUSE_CUDA_ARCHITECTURES=8.0+PTX -DWARPFUSE_BUILD_HOST=OFF -DWARPFUSE_BUILD_BUNDLES=OFF \
    -DWARPFUSE_PYTHON="$python" && cmake --build "$ptx80" --target warpfuse_tests
}
# An entry that exports a folder of bundles, where it is not here yet. What an earlier report tells of it
# was on another machine then.
export_entry() { # name folder command...
  local name=$1 folder=$2
  shift 2
  [ ! -d "$WARPFUSE_BUNDLES/$folder" ] || return 0
  [ -n "$ONLY" ] || sed -i "/^| $name |/d" "$earlier"
  entry "$name" "$@"
}

# The second GPU is measured on where there are two. The others are for the groups of entries.
gpus=$(nvidia-smi --list-gpus | wc -l || true)
IFS=, read -r -a devices <<< "${CUDA_VISIBLE_DEVICES:-$(seq -s , 0 $((gpus - 1)))}"
gpus=${#devices[@]}
others=$((gpus > 2 ? gpus - 1 : 1))
# The cases of a filter by some processes at a time: a case waits for the GPU after each of its many short
# kernels, and a process uses one core. Four groups have parts, each of up to 2.5 GiB of its GPU, whose other
# groups take 30.
mib=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1 | cut -d ' ' -f 1 || true)
parts=$((($(nproc) - 2) / 4)) room=$(((mib - 30 * 1024) / (2560 * ((4 + others - 1) / others))))
parts=$((parts > 1 ? parts : 1))
parts=$((parts < room ? parts : room > 1 ? room : 1))
names_of_cases() { # program filter
  if [[ $("$1" --libidentify) =~ version:\ *2\. ]]; then
    "$1" --list-test-names-only "$2" || true  # the exit code is their number
  else
    "$1" --list-tests --verbosity quiet "$2"
  fi
}
in_parts() { # program filter
  local program=$1 cases part code=0 result processes=()
  cases=$(mktemp -d -p "$work")
  # A file's names are filters: what means something in one is escaped.
  names_of_cases "$program" "$2" | sed 's/[,\\["]/\\&/g' > "$cases/all"
  # An empty file is no filter: all cases would run.
  if [ ! -s "$cases/all" ]; then
    echo "test_gpu.sh: $program lists no cases for $2: FAILED"
    return 1
  fi
  split --elide-empty-files --number="r/$parts" "$cases/all" "$cases/part."
  for part in "$cases"/part.*; do
    "$program" --input-file "$part" > "$part.log" 2>&1 &
    processes+=($!)
  done
  for process in "${processes[@]}"; do
    result=0
    wait "$process" || result=$?
    # A failure counts more than a skip.
    if [ $code -eq 0 ] || { [ $result -ne 0 ] && [ $result -ne 77 ]; }; then code=$result; fi
  done
  cat "$cases"/part.*.log
  rm -r "$cases"
  return $code
}

# Cases whose kernels depend on shared memory, clusters or instructions are tagged [portable].
row_kernels() {
  entry "Catch2, kernels" in_parts "$BUILD/bin/warpfuse_tests" "[gpu][portable]~[huge]~[two-gpus]"
}
other_cases() {
  entry "Catch2, more than 2^31 elements" "$BUILD/bin/warpfuse_tests" "[huge]"
  entry "Catch2, a second GPU" "$BUILD/bin/warpfuse_tests" "[two-gpus]"
  entry "Catch2, other GPU cases" in_parts "$BUILD/bin/warpfuse_tests" "[gpu]~[portable]~[huge]~[two-gpus]"
}
with_less_shared_memory() { # filter
  local -x WARPFUSE_TEST_TUNING=shared_bytes=101376,cluster_blocks=1
  in_parts "$BUILD/bin/warpfuse_tests" "$1"
}
less_shared_memory() {
  entry "Catch2, kernels with 99 KB of shared memory and no clusters" \
    with_less_shared_memory "[gpu][portable]~[huge]~[two-gpus]"
}
with_older_instructions() { # filter
  local -x LD_LIBRARY_PATH="$ptx80/lib:${LD_LIBRARY_PATH:-}"
  in_parts "$ptx80/bin/warpfuse_tests" "$1"
}
older_instructions() {
  [ -z "$PTX80" ] || entry "build of the PTX for 8.0 alone" build_ptx80
  if [ -x "$ptx80/bin/warpfuse_tests" ]; then
    entry "Catch2, kernels of the PTX for 8.0 alone" \
      with_older_instructions "[gpu][portable]~[huge]~[two-gpus]"
  fi
}
measurements() {
  entry "host program, bench" "$python" "$ROOT/tests/host/test_bench_gpu.py"
  entry "host program, tune" "$python" "$ROOT/tests/host/test_tune_gpu.py"
}
sanitizer_and_operators() {
  entry "compute-sanitizer" "$ROOT/scripts/sanitize_gpu.sh" --preset "$PRESET" ${TORCH:+--torch "$TORCH"}
  entry "Python, operators on CUDA" "$python" "$ROOT/tests/python/test_operators.py" --device cuda
}
host_and_modules() {
  export_entry "export of the small model" wikitext-small export_small_model
  export_entry "export of a module" softmax-module \
    export_bundles softmax-module module:softmax --variants baseline,fused
  export_entry "export of Deformable-DETR" deformable-detr-module \
    export_bundles deformable-detr-module module:deformable-detr
  export_entry "export of a module that draws random numbers" linear-dropout-softmax-module \
    export_bundles linear-dropout-softmax-module module:linear-dropout-softmax
  export_entry "export of a linear layer for one kernel" linear-2048x16384 \
    export_bundles linear-2048x16384 module:linear-dropout-softmax --dtype float16 \
    --in-features 2048 --out-features 16384
  local mode
  for mode in "" -train; do
    entry "verify linear-2048x16384/fused$mode against baseline$mode" "$WARPFUSE_HOST" verify \
      "$WARPFUSE_BUNDLES/linear-2048x16384/"{fused,baseline}"$mode-float16" --device cuda
  done
  entry "host program, units" "$BUILD/bin/warpfuse_host_tests" "[gpu]"
  entry "host program, selftest" "$WARPFUSE_HOST" selftest --device cuda
  local dtype variant bundles=$WARPFUSE_BUNDLES/wikitext-small
  for dtype in float32 float16 bfloat16; do
    [ -d "$bundles/baseline-$dtype" ] || continue
    for variant in fused sdpa steps; do
      entry "verify $variant-$dtype against baseline-$dtype" \
        "$WARPFUSE_HOST" verify "$bundles/$variant-$dtype" "$bundles/baseline-$dtype" --device cuda
    done
  done
  entry "generate" "$WARPFUSE_HOST" generate -m "$bundles/fused-float32" --device cuda \
    -p "On September 14, the storm" -n 110
  entry "host program on the bundles" env WARPFUSE_DEVICE=cuda "$python" "$ROOT/tests/host/test_bundles.py"
  entry "host program, generation" env WARPFUSE_DEVICE=cuda "$python" "$ROOT/tests/host/test_generate.py"
  entry "two servers on one GPU" "$python" "$ROOT/tests/host/test_serve_gpu.py"
  entry "a server of docs/examples" env WARPFUSE_DEVICE=cuda WARPFUSE_BUILD="$BUILD" \
    "$python" "$ROOT/tests/host/test_serve_example.py"
  entry "Python, dropout on CUDA" "$python" "$ROOT/tests/python/test_dropout.py" --device cuda
  entry "Python, drawing tokens on CUDA" "$python" "$ROOT/tests/python/test_sampling.py" --device cuda
  entry "Python, compiled for CUDA" "$python" "$ROOT/tests/python/test_compiled.py" --device cuda
}

# These look at the memory that each GPU has in use.
memory_of_gpus() {
  entry "Catch2, contexts on GPUs" "$BUILD/bin/warpfuse_tests" "[contexts]"
  entry "host program, a second GPU" "$python" "$ROOT/tests/host/test_second_gpu.py"
}

# The GPUs in the order in which a group sees them: its own comes first. Groups take them in turn, those with
# parts before the rest.
gpus_of() { # group
  local own=$((($1 - 1) % others)) order i
  own=$((own > 0 ? own + 1 : 0))
  order=${devices[own]:-}
  for i in "${!devices[@]}"; do
    [ "$i" -eq "$own" ] || order+=,${devices[i]}
  done
  echo "$order"
}

# libtorch's threads spin while they wait: more of them than cores would slow all processes.
groups=(row_kernels less_shared_memory older_instructions other_cases sanitizer_and_operators host_and_modules)
threads=$(($(nproc) / (${#groups[@]} + 4 * (parts - 1))))
export OMP_NUM_THREADS=$((threads > 1 ? threads : 1))
processes=() cut_off=0
for name in "${groups[@]}"; do
  group=$((group + 1))
  CUDA_VISIBLE_DEVICES=$(gpus_of "$group") "$name" &
  processes+=($!)
done
# A group that an error ends has no rows for what it has not begun.
wait_for_groups() {
  local process
  for process in "${processes[@]}"; do wait "$process" || cut_off=1; done
}
# Alone on a GPU: on the second one, else after the others.
group=$((group + 1))
if [ "$gpus" -gt 1 ]; then
  CUDA_VISIBLE_DEVICES=${devices[1]} measurements &
  processes+=($!)
  wait_for_groups
else
  wait_for_groups
  OMP_NUM_THREADS=$(nproc) measurements
fi
group=$((group + 1))
memory_of_gpus

compgen -G "$work/row.*" > /dev/null || die "test_gpu.sh: --only $ONLY: names no entry that runs here"
write_report  # of two groups that wrote at once, the slower one may not have seen the other's last row
cat "$REPORT"
[ $cut_off -eq 0 ] || die "test_gpu.sh: a group of entries was cut off"
! grep -qE '\| (\*\*failed|not finished)' "$REPORT"
