# Sourced by the other scripts: messages, the options they share, and the environment of a set-up.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# ccache: the builds with and without CUDA share objects that differ in their build folders' paths alone.
export CCACHE_BASEDIR=$ROOT

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# The words as they can be pasted into a shell.
quoted() {
  local word words=()
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word=${word@Q}
    words+=("$word")
  done
  printf '%s' "${words[*]}"
}

# A set-up lives in a folder of its own: the default one, one for another torch release, or one
# for a torch that was already there (WARPFUSE_PYTHON). The default one's own python, which a loaded
# environment names, is no other torch.
setup_folder() { # torch-version-or-empty
  if [ -n "$1" ]; then echo "$ROOT/.venv-torch-$1"
  elif [ -z "${WARPFUSE_PYTHON:-}" ] || [[ $WARPFUSE_PYTHON == "$(readlink -f "$ROOT/.venv")"/* ]]; then echo "$ROOT/.venv"
  else echo "$ROOT/.venv-named"; fi
}

has_gpu() { command -v nvidia-smi > /dev/null && nvidia-smi -L > /dev/null 2>&1; }

# Takes the options out of the arguments: --torch VERSION, --preset NAME, and what a script's FLAGS and VALUES name, such
# as "--quick|--json-only". The rest goes to REST. --json-only sets JSON_ONLY to itself, --report FILE sets REPORT to FILE;
# what is not given is empty.
FLAGS="" VALUES=""
option_variable() { local name=${1#--}; name=${name//-/_}; printf '%s' "${name^^}"; }
parse_options() {
  local option values="--torch|--preset${VALUES:+|$VALUES}" flags="--help${FLAGS:+|$FLAGS}"
  REST=()
  for option in ${values//|/ } ${flags//|/ }; do declare -g "$(option_variable "$option")="; done
  while [ $# -gt 0 ]; do
    if [[ $1 == @($values) ]]; then
      [ $# -gt 1 ] || die "${0##*/}: $1 needs a value"
      declare -g "$(option_variable "$1")=$2"
      shift
    elif [[ $1 == @(-h|--help) ]]; then sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 0
    elif [[ $1 == @($flags) ]]; then declare -g "$(option_variable "$1")=$1"
    else REST+=("$1"); fi
    shift
  done
  NAMED_PRESET=$PRESET
  use_preset "${PRESET:-release}"
}
# The same where nothing else may follow.
parse_all_options() {
  parse_options "$@"
  [ ${#REST[@]} -eq 0 ] || die "${0##*/}: unknown argument ${REST[0]}; see --help"
}
use_preset() { PRESET=$1 BUILD=$ROOT/build/$1${TORCH:+-torch-$TORCH}; }

# For scripts that run what they build: CUDA kernels take most of a build's time, and without a GPU
# nothing runs them.
leave_out_kernels_without_gpu() {
  if [ -z "$NAMED_PRESET" ] && ! has_gpu; then
    use_preset cpu-only
    say "no GPU: a build without CUDA kernels, in ${BUILD#"$ROOT"/} (--preset release has them)"
  fi
}

# Sets up, loads the environment and configures the build folder, also one that is there: it may have been
# configured in another environment, such as one that names another torch.
configure() {
  "$ROOT/scripts/setup.sh" ${TORCH:+--torch "$TORCH"}
  # shellcheck disable=SC1091
  . "$(setup_folder "$TORCH")/warpfuse.env"
  say "configure: preset $PRESET in ${BUILD#"$ROOT"/}"
  local fresh="" compiler
  # CMake keeps a folder's first compiler, whatever the environment names.
  compiler=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$BUILD/CMakeCache.txt" 2> /dev/null || true)
  [ -z "$compiler" ] || [ "$compiler" = "${CUDACXX:-$compiler}" ] || fresh=--fresh
  (cd "$ROOT" && cmake --preset "$PRESET" -B "$BUILD" $fresh)
}

# The same, and builds; arguments are those of cmake --build.
build() {
  configure
  say "build"
  cmake --build "$BUILD" "$@"
}

# Exports bundles to a folder among the build's; python is set.
export_bundles() { # folder model options-of-export.py...
  local folder=$1
  shift
  "$python" "$ROOT/traced_models/export.py" "$@" -o "$BUILD/bundles/$folder" \
    --plugin "$BUILD/lib/libwarpfuse.so"
}
export_small_model() {
  export_bundles wikitext-small "$ROOT/traced_models/wikitext-small" --dtype float32,float16,bfloat16
}

# On a machine with a GPU: takes the build that came along if the program is in it, else makes one.
# Sets python to the one whose torch the build runs on.
use_build() { # program
  has_gpu || die "${0##*/}: no GPU on this machine"
  if [ -x "$BUILD/bin/$1" ]; then
    python=${WARPFUSE_PYTHON:-$(command -v python3)}
    local torch libraries
    torch=$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
    # The build's own paths may not exist here; its libraries are found in this machine's torch.
    libraries=$torch/lib$(printf ':%s' "$(dirname "$torch")"/nvidia/*/lib)
    export LD_LIBRARY_PATH=$BUILD/lib:$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  else
    build
    python=$WARPFUSE_PYTHON
  fi
}

report() { "$python" "$ROOT/scripts/report.py" "$@"; }

# For scripts that measure: a folder for runs, the list of their files, and whether a result was wrong.
start_runs() {
  runs=$(mktemp -d)
  trap 'rm -rf "$runs"' EXIT
  parts=() wrong=0
}
# `warpfuse bench` to a file of its own, which the report needs even if a result was wrong (exit code 1).
measure() { # preset-or-empty name arguments...
  local file=$runs/$2.json code=0
  say "$2 ($SECONDS s so far)"
  "$BUILD/bin/warpfuse" bench "${@:3}" --json "$file" || code=$?
  [ $code -le 1 ] || die "${0##*/}: warpfuse bench failed with exit code $code"
  [ -f "$file" ] || die "${0##*/}: $2 gave no results"
  [ $code -eq 0 ] || wrong=1
  parts+=("${1:+$1=}$file")
}
