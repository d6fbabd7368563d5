#!/usr/bin/env bash
# usage: scripts/sanitize_gpu.sh [--preset NAME] [memcheck|racecheck|initcheck|synccheck ...]
# Runs every kernel, on small inputs, under compute-sanitizer: memcheck for accesses outside allocated
# memory, racecheck for shared memory that threads touch without a barrier in between, initcheck for
# memory that is read but was never written, synccheck for barriers that not all threads reach. First
# it checks the tools: they must report kernels that are broken on purpose (tests/sanitizer) and a call
# of the library with a tensor that claims to be longer than its memory, and must not report a correct
# kernel.
# exit code: 0 all as expected, 1 not, 77 compute-sanitizer is missing or does not support this
# GPU.

. "$(dirname "$0")/common.sh"
parse_options "$@"
TOOLS=("${REST[@]}")
[ ${#TOOLS[@]} -gt 0 ] || TOOLS=(memcheck racecheck initcheck synccheck)
SKIPPED=77 FOUND=99  # FOUND: what compute-sanitizer exits with when it reports an error

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null || true)
[ -n "$sanitizer" ] || { echo "skipped: no compute-sanitizer on this machine"; exit $SKIPPED; }
tests=$BUILD/bin/warpfuse_tests broken=$BUILD/bin/warpfuse_broken_kernels
for program in "$tests" "$broken"; do
  [ -x "$program" ] || die "sanitize_gpu.sh: $program is not built"
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a program under a tool that looks at our kernels alone, since ATen's are many; its exit code
# goes to CODE, its output to the log.
sanitize() { # tool program...
  local tool=$1 more=()
  shift
  [ "$tool" != synccheck ] || more=(--num-cuda-barriers 64) # per block; it counts too few by itself
  CODE=0
  "$sanitizer" --tool "$tool" "${more[@]}" --kernel-regex kns=warpfuse --error-exitcode $FOUND "$@" > "$log" 2>&1 || CODE=$?
}
fail() { cat "$log" >&2; die "sanitize_gpu.sh: $*"; }

# Each tensor in an allocation of its own, of its own size, or memcheck would take the allocator's
# whole block for the tensor's.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1

for tool in "${TOOLS[@]}"; do
  case $tool in
    memcheck) fault=out-of-bounds ;;
    racecheck) fault=race ;;
    initcheck) fault=uninitialized ;;
    synccheck) fault=divergence ;;
    *) die "sanitize_gpu.sh: expected memcheck, racecheck, initcheck or synccheck, got $tool" ;;
  esac
  say "$tool: a sound kernel, and one that is broken ($fault)"
  sanitize "$tool" "$broken" sound
  if grep -q 'Device not supported' "$log"; then
    echo "skipped: compute-sanitizer does not support this device"
    exit $SKIPPED
  fi
  [ $CODE -eq 0 ] || fail "$tool found fault with a sound kernel, or did not run ($CODE)"
  sanitize "$tool" "$broken" "$fault"
  [ $CODE -eq $FOUND ] || fail "$tool did not catch the broken kernel ($CODE)"
  if [ "$tool" = memcheck ]; then
    sanitize "$tool" "$tests" "[past-the-end]"
    grep -q 'Invalid __global__ read' "$log" || fail "$tool did not see a read past the end of a tensor ($CODE)"
  fi

  # Tiles in stages of shared memory: racecheck does not see an mbarrier that one lane of a warp arrives at
  # for all, nor does initcheck see who writes a tensor map first, or what the TMA unit stores.
  case $tool in
    initcheck) cases="[sanitize]" ;;
    racecheck) cases="[sanitize],[sanitize-bulk]" ;;
    *) cases="[sanitize],[sanitize-bulk],[sanitize-tiles]" ;;
  esac
  say "$tool: the kernels of warpfuse"
  sanitize "$tool" "$tests" "$cases"
  # 77: some test case was skipped.
  [ $CODE -eq 0 ] || [ $CODE -eq $SKIPPED ] || fail "$tool found errors, or tests failed ($CODE)"
  echo "$tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|assertions|skipped' "$log" | sed 's/^=* //' | paste -sd ' ')"
done
