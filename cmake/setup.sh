#!/usr/bin/env bash
# Installs what xhat needs and this machine lacks: packages from the distribution, and Halide into .deps/.
# When nothing is missing it says nothing, touches no network and takes a few milliseconds.
#
#   XHAT_SKIP_PACKAGES=1         do not look at packages (they come from elsewhere, or this is not Debian or Ubuntu)
#   XHAT_HALIDE_WHEEL=FILE.whl   unpack this copy of the wheel instead of downloading it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build
  libisl-dev libfmt-dev libcli11-dev nlohmann-json3-dev libboost-graph-dev libeigen3-dev
  libgtest-dev libbenchmark-dev
  python3 python3-pip # pip only fetches the wheel
)
halide_version=21.0.0
halide_sha256=3686c2b4c9aed1e26e1e55631608b2c4a4c3fe2d4386505ba1921859adb683ab
halide_dir=.deps/halide-$halide_version

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

install_halide() {
  [[ -d $halide_dir ]] && return # it appears whole or not at all, see the mv below
  local start=$SECONDS wheel=${XHAT_HALIDE_WHEEL:-} python candidate
  # The python3 first in PATH may be a virtual environment without pip.
  for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
  done
  [[ -n ${python:-} ]] || fail "python3 has no pip, which fetches Halide." "install python3-pip and run this again."

  temporary=$(mktemp -d .deps/halide.XXXXXX)
  trap 'rm -rf "$temporary"' EXIT
  if [[ -z $wheel ]]; then
    say "downloading Halide $halide_version (69 MB)"
    # Asked for by its tags, so that one file with one hash fits whatever Python this machine has.
    "$python" -m pip --disable-pip-version-check download --quiet --no-deps --only-binary=:all: \
      --platform manylinux_2_28_x86_64 --implementation cp --python-version 3.11 --abi cp311 \
      --dest "$temporary" "halide==$halide_version" </dev/null || fail "pip could not download Halide." \
      "check the network and pip's configuration (python3 -m pip config list), then run this again;" \
      "or fetch the wheel (halide $halide_version, cp311, manylinux x86_64) elsewhere and set XHAT_HALIDE_WHEEL=FILE."
    wheel=$(echo "$temporary"/*.whl)
  fi
  [[ -f $wheel ]] || fail "there is no file $wheel."
  sha256sum --status --check - <<<"$halide_sha256  $wheel" || fail "$wheel is not the Halide we know." \
    "expected sha256 $halide_sha256" "found           $(sha256sum "$wheel" | cut -d' ' -f1)" \
    "remove any copy of the file that pip may have cached (python3 -m pip cache purge) and run this again."

  say "unpacking Halide to $halide_dir"
  "$python" - "$wheel" "$temporary/halide" <<'PYTHON'
# The headers, the library with its autoschedulers, and the license; the Python module is of no use to us.
import pathlib, re, sys, zipfile
wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for name in archive.namelist():
        found = re.fullmatch(r"halide/(include/.+|lib64/lib(?:Halide|autoschedule_\w+)\.so)|.*/(LICENSE\.txt)", name)
        if found:
            path = pathlib.Path(target, found[1] or found[2])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
PYTHON
  [[ -f $temporary/halide/include/Halide.h && -f $temporary/halide/lib64/libHalide.so ]] ||
    fail "the wheel does not contain include/Halide.h and lib64/libHalide.so."
  mv -T "$temporary/halide" "$halide_dir"
  say "Halide is ready after $((SECONDS - start)) s"
}

[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] || fail "xhat builds on x86-64 Linux; this is $(uname -s) on $(uname -m)." \
  "Halide $halide_version is published as a ready library for no other Linux machine."

mkdir -p .deps
exec 9>.deps/lock
flock 9 # two builds started at once: the second waits and then finds everything there
install_packages
install_halide
