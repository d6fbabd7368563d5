#!/usr/bin/env bash
# usage: scripts/build_report.sh [--gpu]
# Measures the cost of building this commit, and writes its part of docs/build_report.md. Without a GPU, in
# a clone in build/report and without ccache: the demo and the test command, the CUDA library for 9.0a by
# object, its kernels and sizes, files and lines. This takes half an hour on two cores.
#   --gpu   the other part, on a machine with a GPU: the build with tests on all cores, the host's time per
#           call, the time to the first kernel

. "$(dirname "$0")/common.sh"
FLAGS="--gpu"
parse_all_options "$@"
[ -z "$(git -C "$ROOT" status --porcelain --untracked-files=no 2> /dev/null)" ] ||
  die "build_report.sh: the report is of a commit; this checkout has changes"
folder=$ROOT/build/report
rm -rf "$folder"
mkdir -p "$folder"
export CCACHE_DISABLE=1
write_part() { "$WARPFUSE_PYTHON" "$ROOT/scripts/build_report.py" "$@" "$folder" "$ROOT/docs/build_report.md"; }

# Appends "<wall s> <CPU s> <name>" to the folder's file `seconds`. The command's output goes to a file.
measure() { # name command...
  local name=$1 TIMEFORMAT='%R %U %S'
  shift
  say "$name"
  { time "$@" > "$folder/log" 2>&1; } 2> "$folder/time" || { tail -n 40 "$folder/log"; die "build_report.sh: $name failed"; }
  awk -v name="$name" '{print $1, $2 + $3, name}' "$folder/time" >> "$folder/seconds"
}

if [ -n "$GPU" ]; then
  BUILD=$folder/gpu
  configure
  measure "build with tests" cmake --build "$BUILD" --target warpfuse warpfuse_host warpfuse_tests warpfuse_host_tests
  "$BUILD/bin/warpfuse" bench overhead --device cuda --json "$folder/overhead.json"
  "$WARPFUSE_PYTHON" "$ROOT/scripts/first_kernel.py" "$BUILD/lib/libwarpfuse.so" > "$folder/first_kernel"
  write_part gpu
else
  "$ROOT/scripts/setup.sh"
  clone=$folder/clone
  git clone -q "$ROOT" "$clone"
  ln -s "$(readlink -f "$ROOT/.venv")" "$clone/.venv"
  # shellcheck disable=SC1091
  . "$clone/.venv/warpfuse.env"
  measure "scripts/demo.sh" "$clone/scripts/demo.sh" --preset cpu-only
  measure "scripts/test.sh after it" "$clone/scripts/test.sh" --preset cpu-only
  launcher=$ROOT/scripts/time_compile.sh
  cmake -S "$clone" --preset release -B "$folder/cuda" -DWARPFUSE_WITH_CUDA=ON -DWARPFUSE_CUDA_ARCHITECTURES=9.0a \
    -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DCMAKE_CUDA_COMPILER_LAUNCHER="$launcher" > "$folder/log"
  export WARPFUSE_COMPILE_LOG=$folder/compile_times
  measure "the CUDA library" cmake --build "$folder/cuda" --target warpfuse
  write_part cpu
fi
say "docs/build_report.md"
