#!/usr/bin/env bash
# setup.sh [tests [browser] | boards]: installs what xhat needs and this machine lacks: packages from the distribution, and Halide into .deps/.
# tests: also what the tests of the GPU targets need: OpenCL and Vulkan on the CPU, and CUDA's assembler; NumPy and pytest for those of the
# Python package; browser: also Chromium.
# boards: what boards of others need: ONNX with its tests' data, and NumPy.
# When nothing is missing it says nothing, touches no network and takes a few milliseconds.
#
#   XHAT_SKIP_PACKAGES=1         do not look at packages (they come from elsewhere, or this is not Debian or Ubuntu)
#   XHAT_HALIDE_WHEEL=FILE.whl   unpack this copy of the wheel instead of downloading it
#   XHAT_NVCC_WHEEL=FILE.whl     the same for CUDA's assembler
#   XHAT_NANOBIND_WHEEL=FILE.whl the same for what binds C++ to Python
#   XHAT_NETRON_WHEEL, XHAT_MPLD3_WHEEL  the same for what the page of `xhat viz` draws with
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build
  libisl-dev libfmt-dev libcli11-dev nlohmann-json3-dev libboost-graph-dev libeigen3-dev
  libgtest-dev libbenchmark-dev
  python3 python3-dev python3-pip # pip only fetches the wheels
)
test_packages=(ocl-icd-libopencl1 pocl-opencl-icd libvulkan1 mesa-vulkan-drivers libjemalloc2)
halide_version=21.0.0
halide_sha256=3686c2b4c9aed1e26e1e55631608b2c4a4c3fe2d4386505ba1921859adb683ab
halide_dir=.deps/halide-$halide_version
nvcc_version=12.9.86
nvcc_sha256=5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0
nvcc_dir=.deps/nvcc-$nvcc_version

# What the page of `xhat viz` draws with: netron's copy of dagre lays out graphs, d3 draws; mpld3 is a package that has d3.
netron_version=9.3.3
netron_sha256=37e94827e9eddadc27b94b70aacdd531436ce56b467dcba3c52144709e3612bb
netron_dir=.deps/netron-$netron_version
mpld3_version=0.5.12
mpld3_sha256=bea31799a4041029a906f53f2662bbf1c49903e0c0bc712b412354158ec7cf54
mpld3_dir=.deps/mpld3-$mpld3_version

# Binds C++ to Python.
nanobind_version=3.1.0
nanobind_sha256=96984dbe8154ffb86e653b1b60aaeed6985c710c5e75ad0279eb87943c66292d
nanobind_dir=.deps/nanobind-$nanobind_version

say() { echo "setup: $*" >&2; }
fail() {
  say "error: $1"
  shift
  for line in "$@"; do say "  $line"; done
  exit 1
}

install_packages() {
  [[ ${XHAT_SKIP_PACKAGES:-0} != 0 ]] && return
  command -v dpkg-query >/dev/null || fail "this is not Debian or Ubuntu, so packages cannot be checked." \
    "install what these Debian packages contain: ${packages[*]}" "then set XHAT_SKIP_PACKAGES=1."
  local installed missing=() package
  # dpkg-query fails when it does not know a package; that one is then missing from its output, which is all we need.
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null || true)
  for package in "${packages[@]}"; do
    grep -qxF "installed $package" <<<"$installed" || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return

  local root=()
  if [[ $EUID != 0 ]]; then
    root=(sudo -n)
    sudo -n true 2>/dev/null || fail "packages are missing and this user may not install them. run:" \
      "sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  say "installing packages: ${missing[*]}"
  local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0) log=.deps/apt.log
  "${apt[@]}" update >"$log" 2>&1 </dev/null || say "warning: apt-get update failed; trying with the lists at hand"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null || {
    tail -n 20 "$log" >&2
    fail "apt-get could not install the packages; its output is in $log." \
      "check the network and apt's sources, then run this again."
  }
}

# install_wheel NAME VERSION SHA256 FOLDER COPY MEGABYTES FILES TAGS...: of the wheel's files those that FILES, a regular expression,
# takes: its first group is where they go in FOLDER. COPY: the file to take instead of downloading it, or nothing.
install_wheel() {
  local name=$1 version=$2 sha256=$3 folder=$4 wheel=$5 megabytes=$6 files=$7 start=$SECONDS python candidate
  shift 7
  [[ -d $folder ]] && return # it appears whole or not at all, see the mv below
  # The python3 first in PATH may be a virtual environment without pip.
  for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
  done
  [[ -n ${python:-} ]] || fail "python3 has no pip, which fetches $name." "install python3-pip and run this again."

  temporary=$(mktemp -d .deps/wheel.XXXXXX)
  trap 'rm -rf "$temporary"' EXIT
  if [[ -z $wheel ]]; then
    say "downloading $name $version ($megabytes MB)"
    # Asked for by its tags, so that one file with one hash fits whatever Python this machine has.
    "$python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: --implementation cp \
      --python-version 3.11 "$@" --dest "$temporary" "$name==$version" </dev/null || fail "pip could not download $name." \
      "check the network and pip's configuration (python3 -m pip config list), then run this again;" \
      "or fetch the wheel ($name $version, $*) elsewhere and name it, see the head of cmake/setup.sh."
    wheel=$(echo "$temporary"/*.whl)
  fi
  [[ -f $wheel ]] || fail "there is no file $wheel."
  sha256sum --status --check - <<<"$sha256  $wheel" || fail "$wheel is not the $name we know." \
    "expected sha256 $sha256" "found           $(sha256sum "$wheel" | cut -d' ' -f1)" \
    "remove any copy of the file that pip may have cached (python3 -m pip cache purge) and run this again."

  say "unpacking $name to $folder"
  "$python" - "$wheel" "$temporary/unpacked" "$files" <<'PYTHON'
import pathlib, re, sys, zipfile
wheel, target, files = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        found = re.fullmatch(files, name)
        if found:
            path = pathlib.Path(target, next(filter(None, found.groups())))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
PYTHON
  [[ -d $temporary/unpacked ]] || fail "the wheel does not contain $files."
  mv -T "$temporary/unpacked" "$folder"
  rm -rf "$temporary"
  say "$name is ready after $((SECONDS - start)) s"
}

# The headers, the library with its autoschedulers, and the license; the Python module is of no use to us.
install_halide() {
  install_wheel halide "$halide_version" "$halide_sha256" "$halide_dir" "${XHAT_HALIDE_WHEEL:-}" 69 \
    'halide/(include/.+|lib64/lib(?:Halide|autoschedule_\w+)\.so)|.*/(LICENSE\.txt)' --platform manylinux_2_28_x86_64 --abi cp311
  [[ -f $halide_dir/include/Halide.h && -f $halide_dir/lib64/libHalide.so ]] ||
    fail "$halide_dir lacks include/Halide.h or lib64/libHalide.so." "remove $halide_dir and run this again."
}

install_page_libraries() {
  install_wheel netron "$netron_version" "$netron_sha256" "$netron_dir" "${XHAT_NETRON_WHEEL:-}" 4 \
    'netron/(dagre\.js)|.*/(METADATA)' --platform any --abi none
  install_wheel mpld3 "$mpld3_version" "$mpld3_sha256" "$mpld3_dir" "${XHAT_MPLD3_WHEEL:-}" 1 \
    'mpld3/js/(d3\.v5\.min\.js)|.*/(METADATA)' --platform any --abi none
}

install_nanobind() {
  install_wheel nanobind "$nanobind_version" "$nanobind_sha256" "$nanobind_dir" "${XHAT_NANOBIND_WHEEL:-}" 1 \
    'nanobind/((?:cmake|ext|include|src)/.+)|.*/licenses/(LICENSE)' --platform any --abi none
}

# install_python_packages NAME REQUIREMENTS MEGABYTES: for the python3 that CMake finds, to .deps/NAME-VERSION, each file with its hash.
install_python_packages() {
  local name=$1 requirements=$2 megabytes=$3 version folder python candidate
  version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  folder=.deps/$name-$version
  [[ -d $folder ]] && return
  for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
  done
  [[ -n ${python:-} ]] || fail "python3 has no pip, which fetches $requirements." "install python3-pip and run this again."
  say "installing $requirements to $folder ($megabytes MB)"
  temporary=$(mktemp -d .deps/python.XXXXXX)
  trap 'rm -rf "$temporary"' EXIT
  "$python" -m pip --disable-pip-version-check install --quiet --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes --implementation cp \
    --python-version "$version" --target "$temporary/packages" -r "$requirements" </dev/null ||
    fail "pip could not install $requirements for Python $version." "it has hashes for Python 3.11 to 3.14;" \
      "check the network and pip's configuration (python3 -m pip config list), then run this again."
  mv -T "$temporary/packages" "$folder"
  rm -rf "$temporary"
}

install_ptxas() {
  install_wheel nvidia-cuda-nvcc-cu12 "$nvcc_version" "$nvcc_sha256" "$nvcc_dir" "${XHAT_NVCC_WHEEL:-}" 41 \
    'nvidia/cuda_nvcc/bin/(ptxas)|.*/(License\.txt)' --platform manylinux2010_x86_64 --abi none
  chmod +x "$nvcc_dir/ptxas"
}

[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] || fail "xhat builds on x86-64 Linux; this is $(uname -s) on $(uname -m)." \
  "Halide $halide_version is published as a ready library for no other Linux machine."

mkdir -p .deps
exec 9>.deps/lock
flock 9 # two builds started at once: the second waits and then finds everything there
[[ ${1:-} != tests ]] || packages+=("${test_packages[@]}")
[[ ${2:-} != browser ]] || packages+=(chromium-headless-shell)
install_packages
install_halide
install_page_libraries
install_nanobind
[[ ${1:-} != tests ]] || install_ptxas
[[ ${1:-} != tests && ${1:-} != boards ]] || install_python_packages python-tests tests/python/requirements.txt 17
[[ ${1:-} != boards ]] || install_python_packages onnx tests/onnx/requirements.txt 20
