#!/usr/bin/env bash
# usage: scripts/setup.sh [--torch VERSION]
# Installs what a build needs: Debian packages, and a .venv with torch, the CUDA compiler, cmake,
# ninja and the lint tools. Safe to repeat: what is there is not done again. Asks nothing.
#   --torch VERSION       another torch release, in a .venv of its own
#   WARPFUSE_PYTHON=...   a python that has torch already: no torch is downloaded
#   CUDACXX=...           an nvcc that is there already: no CUDA compiler is downloaded

. "$(dirname "$0")/common.sh"
parse_all_options "$@"
FOLDER=$(readlink -f "$(setup_folder "$TORCH")")  # another checkout's, where it is a link
for variable in WARPFUSE_PYTHON CUDACXX; do  # nobody has named what this set-up's environment has set
  [[ ${!variable:-} != "$FOLDER"/* ]] || unset "$variable"
done
NAMED_CUDACXX=${CUDACXX:-}
REQUIREMENTS=$ROOT/scripts/requirements

# --- Debian and Ubuntu packages --------------------------------------------------------------

PACKAGES=(g++ catch2 libcxxopts-dev nlohmann-json3-dev libfmt-dev libpcre2-dev libssl-dev libcpp-httplib-dev ccache python3-venv wrk apache2-utils)
missing=()
if command -v dpkg-query > /dev/null; then
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
  done
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -eq 0 ]; then as_root=(); elif sudo -n true 2> /dev/null; then as_root=(sudo -n)
  else die "setup.sh: missing packages, and no root to install them: apt-get install ${missing[*]}"; fi
  say "Debian packages: ${missing[*]} (about 60 MB when g++ is among them, else under 10 MB)"
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# --- Python packages -------------------------------------------------------------------------

venv_python=$FOLDER/bin/python
pip_install() { "$venv_python" -m pip install --disable-pip-version-check --progress-bar on "$@"; }
stamp() { cat "$REQUIREMENTS"/*.txt "$0"; echo "$TORCH ${WARPFUSE_PYTHON:-} $NAMED_CUDACXX"; }
make_venv() {
  [ -x "$venv_python" ] || "$(command -v /usr/bin/python3 || command -v python3)" -m venv "$FOLDER"
}
site_packages() { "$1" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])'; }

if [ -f "$FOLDER/warpfuse.env" ] && [ "$(stamp | sha256sum)" = "$(cat "$FOLDER/stamp" 2> /dev/null)" ]; then
  exit 0
fi

mkdir -p "$FOLDER"
if [ -n "${WARPFUSE_PYTHON:-}" ] && [ -z "$TORCH" ]; then
  python=$WARPFUSE_PYTHON
  "$python" -c 'import torch' 2> /dev/null || die "setup.sh: WARPFUSE_PYTHON=$python cannot import torch"
  if ! { command -v cmake && command -v ninja && cmake --version | grep -qE ' (3\.2[6-9]|3\.[3-9]|[4-9])'; } > /dev/null; then
    say "Python packages for cmake, ninja and the lint tools: about 100 MB to download"
    make_venv
    pip_install -r "$REQUIREMENTS/tools.txt"
  fi
else
  python=$venv_python
  torch_requirement=$(cat "$REQUIREMENTS/torch.txt")
  [ -z "$TORCH" ] || torch_requirement=torch==$TORCH
  say "Python packages into ${FOLDER#"$ROOT"/}: $torch_requirement with its CUDA libraries, cmake, ninja," \
    "clang tools, transformers: about 2.9 GB to download, 5.5 GB on disk"
  make_venv
  pip_install "$torch_requirement" -r "$REQUIREMENTS/tools.txt" -r "$REQUIREMENTS/models.txt"
fi
torch_folder=$(site_packages "$python")

# --- the CUDA compiler -----------------------------------------------------------------------

cuda_home=""
if [ -n "$NAMED_CUDACXX" ]; then
  cuda_home=$(cd "$(dirname "$NAMED_CUDACXX")/.." && pwd)
elif [ "$python" = "$venv_python" ]; then
  # The compiler of the release that this torch was built with, from torch's own requirements.
  toolkit=$("$python" - <<'PYTHON'
import importlib.metadata, re
for requirement in importlib.metadata.requires("torch"):
    found = re.match(r"cuda-toolkit\[.*\](==[\w.*]+)", requirement)
    if found:
        print("cuda-toolkit[nvcc,crt,nvvm,cccl,cudart]" + found[1])
PYTHON
  )
  if [ -n "$toolkit" ]; then
    say "CUDA compiler from PyPI: $toolkit: about 110 MB to download"
    pip_install "$toolkit"
    cuda_home=$(echo "$(dirname "$torch_folder")"/nvidia/cu[0-9]*)
    # The wheels ship libX.so.N alone, and no lib64: cmake's finders and nvcc look for both.
    for library in "$cuda_home"/lib/lib*.so.*; do
      link=${library%%.so.*}.so
      [ -e "$link" ] || ln -s "$(basename "$library")" "$link"
    done
    [ -e "$cuda_home/lib64" ] || ln -s lib "$cuda_home/lib64"
  fi
else
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null || true)
  [ -z "$nvcc" ] || cuda_home=$(cd "$(dirname "$(readlink -f "$nvcc")")/.." && pwd)
fi

# --- what the other scripts source -----------------------------------------------------------

{
  echo "export WARPFUSE_PYTHON='$python'"
  [ -z "$cuda_home" ] || printf "export CUDACXX='%s'\nexport CUDA_HOME='%s' CUDAToolkit_ROOT='%s'\n" \
    "$cuda_home/bin/nvcc" "$cuda_home" "$cuda_home"
  [ ! -x "$venv_python" ] || echo "export PATH='$FOLDER/bin':\"\$PATH\""
} > "$FOLDER/warpfuse.env"
stamp | sha256sum > "$FOLDER/stamp"
say "set up in ${FOLDER#"$ROOT"/}"
