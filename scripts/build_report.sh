#!/usr/bin/env bash
# usage: scripts/build_report.sh [--torch VERSION] [--architectures LIST]
# Builds this commit anew in build/report, without ccache, and writes docs/build_report.md: the CPU
# seconds of compiling, the sizes and the kernels. Needs nvcc and cuobjdump, and no GPU.
#   --architectures LIST   as WARPFUSE_CUDA_ARCHITECTURES; 9.0a if not given

. "$(dirname "$0")/common.sh"
parse_options "$@"
ARCHITECTURES=9.0a
set -- "${REST[@]}"
while [ $# -gt 0 ]; do
  case "$1" in
    --architectures) [ $# -gt 1 ] || die "$0: --architectures needs a list"; ARCHITECTURES=$2; shift 2 ;;
    *) die "build_report.sh: unknown argument $1; see --help" ;;
  esac
done
[ -z "$(git -C "$ROOT" status --porcelain --untracked-files=no)" ] ||
  die "build_report.sh: the report is of a commit; this checkout has changes"
BUILD=$ROOT/build/report
rm -rf "$BUILD"
"$ROOT/scripts/setup.sh" ${TORCH:+--torch "$TORCH"}
# shellcheck disable=SC1091
. "$(setup_folder "$TORCH")/warpfuse.env"
launcher=$ROOT/scripts/time_compile.sh
(cd "$ROOT" && cmake --preset release -B "$BUILD" -DWARPFUSE_WITH_CUDA=ON \
  -DWARPFUSE_CUDA_ARCHITECTURES="$ARCHITECTURES" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" -DCMAKE_CUDA_COMPILER_LAUNCHER="$launcher")
export WARPFUSE_COMPILE_LOG=$BUILD/compile_times
say "build"
cmake --build "$BUILD"
"$WARPFUSE_PYTHON" "$ROOT/scripts/build_report.py" "$BUILD" "$ARCHITECTURES" > "$ROOT/docs/build_report.md"
say "docs/build_report.md"
