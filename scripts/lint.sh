#!/usr/bin/env bash
# usage: scripts/lint.sh [--all] [--fix] [--preset NAME]
# Runs clang-format on all C++ and CUDA files, a check for words that were replaced, and clang-tidy on the files that differ from
# the base (the environment variable LINT_BASE, else the commit before HEAD), or on all files with --all.
#   --fix   let clang-format rewrite the files

. "$(dirname "$0")/common.sh"
FLAGS="--all|--fix"
parse_all_options "$@"
configure
cd "$ROOT"
BUILD=$BUILD/lint  # each file's own flags
cmake --preset "$PRESET" -B "$BUILD" -DWARPFUSE_UNITY=OFF > /dev/null
cmake --build "$BUILD" --target warpfuse_commit > /dev/null  # a header that the build writes

say "clang-format"
mapfile -t sources < <(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
if [ -n "$FIX" ]; then clang-format -i "${sources[@]}"; else clang-format --dry-run -Werror "${sources[@]}"; fi

say "words"
# Names and units that were replaced: the standard word is after the arrow in each comment.
old='likeliest'                                      # -> most probable, top_logprobs
old+='|\bk(Most|Least|Fewest)[A-Z]'                  # -> kMax, kMin
old+='|[Cc]ontestant'                                # -> variant
old+='|[Ss]oftmax_?[Cc]ensus'                        # -> SoftmaxCallCounter
old+='|(--shapes|preset) `?seed\b'                   # -> basic
old+='|\b(us|ms|nats) an? (call|token|row|step)\b'   # -> us/call, per token
if git grep -nE "$old" -- README.md docs host_app scripts tests/host \
  ':!docs/benchmarks/*.json' ':!scripts/lint.sh' ':!docs/operators/sampling.md'; then
  die "lint.sh: old words"
fi

say "clang-tidy"
if [ -n "$ALL" ]; then
  tidied=$(git ls-files '*.cpp')
else
  base=${LINT_BASE:-$(git rev-parse --verify --quiet HEAD~1 || git hash-object -t tree /dev/null)}
  tidied=$(git diff --name-only --diff-filter=d "$base" -- '*.cpp')
fi
# A file that this preset does not compile has no flags to check it with.
compiled=()
for file in $tidied; do
  if grep -q "\"file\": \"$ROOT/$file\"" "$BUILD/compile_commands.json"; then compiled+=("$file"); fi
done
[ ${#compiled[@]} -eq 0 ] || printf '%s\0' "${compiled[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$BUILD" --quiet --warnings-as-errors='*' \
    --extra-arg=-Wno-ignored-gch --extra-arg=-fno-openmp --extra-arg=-Wno-unknown-warning-option
# The precompiled header is g++'s, clang reads its text instead; clang may have no omp.h, and does
# not know all of g++'s warnings.
say "lint: ${#sources[@]} files formatted, ${#compiled[@]} tidy"
